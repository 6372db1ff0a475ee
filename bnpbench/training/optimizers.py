"""torch's optimizers, with the learning rate as a tensor that is changed in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench.suite import Settings


def build_optimizer(settings: Settings, model: nn.Module, lr: Tensor, *, fused: bool) -> torch.optim.Optimizer:
    """The optimizer of a cell.

    Args:
        settings: of the cell; weight decay is added here unless it stands in the loss (``where = "l2"``).
        model: whose parameters are trained.
        lr: 0-d tensor on the parameters' device; the schedule writes into it.
        fused: one kernel for all parameters; else for-each kernels (``meta`` has no fused ones).
    """
    options, decay = settings.optimizer, settings.weight_decay
    kernels = {"fused": True} if fused else {"foreach": True}
    weight_decay = decay.value if decay.where == "optimizer" else 0.0
    if options.kind == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=lr,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=weight_decay,
            **kernels,
        )
    return torch.optim.Adam(
        model.parameters(),
        lr=lr,
        betas=options.betas,
        eps=options.eps,
        weight_decay=weight_decay,
        capturable=not fused,
        **kernels,
    )
