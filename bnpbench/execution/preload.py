"""What the forkserver imports once for all children: a module of its own, because it is told to it by name.

Imports only: a tensor operation here would start OpenMP's threads, which do not survive the fork, and every child
would hang.
"""

import contextlib

with contextlib.suppress(Exception):  # as where memory is limited: the child that needs it tells what is the matter
    import torch
    import torch._dynamo  # noqa: F401
    import torchvision  # noqa: F401

    import bnpbench.execution.preflight  # what answers nearly all requests
    import bnpbench.execution.ranks  # noqa: F401
