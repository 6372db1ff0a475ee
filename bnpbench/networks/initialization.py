"""The weights a network starts from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench.suite.vocabulary import HeNormal, InitializationOptions

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def initialize(model: nn.Module, options: InitializationOptions, generator: torch.Generator) -> None:
    """Draw the weights of every Linear and Conv of ``model`` in order; set their biases to 0.

    Normalization layers keep the ones and zeros that they are built with and draw nothing, so the
    same state of ``generator`` gives every method the same weights. They are drawn in the weight's
    own type on the CPU and copied, so the device does not change them either.

    Args:
        model: changed in place.
        options: ``glorot`` (uniform, Glorot and Bengio 2010) or ``he-normal`` (fan in, He et al.
            2015) times its ``factor``.
        generator: a generator of the CPU.
    """
    for module in model.modules():
        if isinstance(module, WEIGHTED):
            module.weight.copy_(_drawn(module.weight, options, generator))
            if module.bias is not None:
                module.bias.zero_()


def _drawn(weight: Tensor, options: InitializationOptions, generator: torch.Generator) -> Tensor:
    if weight.is_meta:
        return weight
    values = torch.empty(weight.shape, dtype=weight.dtype)
    if isinstance(options, HeNormal):
        return nn.init.kaiming_normal_(values, nonlinearity="relu", generator=generator).mul_(options.factor)
    return nn.init.xavier_uniform_(values, generator=generator)
