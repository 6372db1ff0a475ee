"""torch's optimizers, with the learning rate as a tensor that is changed in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.suite import Settings


def build_optimizer(
    settings: Settings, model: nn.Module, lr: Tensor | None = None, *, fused: bool = False
) -> torch.optim.Optimizer:
    """The optimizer of a cell.

    Args:
        settings: of the cell; weight decay is added here unless it stands in the loss (``where = "l2"``).
        model: whose parameters are trained.
        lr: 0-d tensor on the parameters' device, into which the schedule writes; without it a number.
        fused: one kernel for all parameters. Neither the ``meta`` device nor a compiled step with a tensor learning
            rate has those: there the kernels are for-each ones.
    """
    options, decay = settings.optimizer, settings.weight_decay
    common: dict[str, Any] = {
        "lr": options.lr,
        "weight_decay": decay.value if decay.where == "optimizer" else 0.0,
        "foreach": not fused,
        "fused": fused,
    }
    optimizer: torch.optim.Optimizer
    if options.kind == "sgd":
        momentum, nesterov = options.momentum, options.nesterov
        optimizer = torch.optim.SGD(model.parameters(), momentum=momentum, nesterov=nesterov, **common)
    else:
        capturable = lr is not None and (not fused or lr.is_cuda)  # its step count is then a tensor on the device
        optimizer = torch.optim.Adam(
            model.parameters(), betas=options.betas, eps=options.eps, capturable=capturable, **common
        )
    if lr is not None:  # afterwards: the constructors would read a tensor back to check its sign
        for group in optimizer.param_groups:
            group["lr"] = lr
    return optimizer
