"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.fields import Fraction
from bnpbench.optimizers.base import OptimizerPlugin

if TYPE_CHECKING:
    import torch
    from torch import nn


class Sgd(OptimizerPlugin):
    """torch.optim.SGD."""

    decays: ClassVar[Literal["coupled"]] = "coupled"
    kind: Literal["sgd"]
    momentum: Fraction = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        import torch

        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=weight_decay,
            foreach=not fused,
            fused=fused,
        )
