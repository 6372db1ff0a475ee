"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from bnpbench.fields import Fraction, PositiveFloat
from bnpbench.optimizers.base import OptimizerPlugin

if TYPE_CHECKING:
    import torch
    from torch import nn


class AdamW(OptimizerPlugin):
    """torch.optim.AdamW (Loshchilov and Hutter 2019): ``weight_decay`` shrinks the weights and joins no gradient."""

    kind: Literal["adamw"]
    lr: PositiveFloat = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        import torch

        return torch.optim.AdamW(
            parameters,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=weight_decay,
            capturable=capturable,
            foreach=not fused,
            fused=fused,
        )
