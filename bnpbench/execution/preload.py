"""What the forkserver imports once for all children: a module of its own, because it is told to it by name.

Nothing here computes: a tensor operation would start OpenMP's threads, which do not survive the fork, and every child
would hang.
"""

import contextlib
import threading

with contextlib.suppress(Exception):  # as where memory is limited: the child that needs it tells what is the matter
    import torch
    import torch._dynamo
    import torch.hub
    import torchvision  # noqa: F401

    import bnpbench.execution.preflight  # what answers nearly all requests
    import bnpbench.execution.ranks  # noqa: F401

    # The lock of torch's progress bars is else a semaphore of the system, which a child that is killed leaves behind.
    # They are tqdm's; where that is not installed, torch's own have no lock.
    torch.hub.tqdm.set_lock(threading.RLock())  # type: ignore[attr-defined]
