"""The arithmetic of a cell, ``[train] precision``.

``float32`` is what it says: CUDA's matrix products and convolutions do not round to TF32, which torch's default allows
convolutions to do. ``tf32`` lets both. ``bf16`` runs forward passes and the loss under autocast: weights, gradients,
optimizer, and the statistics of normalizations and of BNP stay in float32, and backward passes follow the forward ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from bnpbench.suite import Settings


def configure(settings: Settings) -> None:
    """Set this process up for a cell's precision; cells that share a process agree on it."""
    # The older of torch's two interfaces: the newer one makes readers of the older fail, and inductor is one of them.
    torch.set_float32_matmul_precision("high" if settings.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[object]:
    """Goes around forward passes and the loss; can be entered again and again."""
    if settings.precision != "bf16" or device.type == "meta":  # torch has no autocast for tensors without data
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
