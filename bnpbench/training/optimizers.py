"""torch's optimizers, with the learning rate as a tensor that is changed in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.suite import Settings


def build_optimizer(settings: Settings, model: nn.Module, lr: Tensor | None = None) -> torch.optim.Optimizer:
    """The optimizer of a cell.

    Args:
        settings: of the cell; weight decay is added here unless it stands in the loss (``where = "l2"``).
        model: whose parameters are trained.
        lr: 0-d tensor on the parameters' device, into which the schedule writes; the update is then one fused
            kernel. Without it the learning rate is a number and the kernels are for-each ones, which is what the
            ``meta`` device has.
    """
    options, decay = settings.optimizer, settings.weight_decay
    common: dict[str, Any] = {
        "lr": options.lr,
        "weight_decay": decay.value if decay.where == "optimizer" else 0.0,
        "foreach": lr is None,
        "fused": lr is not None,
    }
    optimizer: torch.optim.Optimizer
    if options.kind == "sgd":
        momentum, nesterov = options.momentum, options.nesterov
        optimizer = torch.optim.SGD(model.parameters(), momentum=momentum, nesterov=nesterov, **common)
    else:
        optimizer = torch.optim.Adam(model.parameters(), betas=options.betas, eps=options.eps, **common)
    if lr is not None:  # afterwards: the constructors would read a tensor back to check its sign
        for group in optimizer.param_groups:
            group["lr"] = lr
    return optimizer
