"""What the forkserver imports besides where engines compile: each child of a block would else take seconds for it.

As in ``preload``, nothing here may start a thread or touch a device. What the processor can do is left to the children:
to try it imports ``torch.utils.cpp_extension``, which counts the devices, after which no child could use one.
"""

import contextlib

with contextlib.suppress(Exception):  # the child that needs it tells what is the matter
    import torch._inductor.compile_fx  # noqa: F401
    from torch._inductor.codecache import torch_key, triton_key
    from torch._inductor.codegen.common import init_backend_registration

    init_backend_registration()  # imports the code generators
    torch_key()  # hashes of sources, which name what is kept in the cache of compiled code
    triton_key()
