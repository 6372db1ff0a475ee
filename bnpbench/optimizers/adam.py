"""Adam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Fraction, PositiveFloat
from bnpbench.optimizers.base import OptimizerPlugin

if TYPE_CHECKING:
    import torch
    from torch import nn


class AnyAdam(OptimizerPlugin):
    """What Adam and its kin have in common.

    Attributes:
        torch_name: of the class in ``torch.optim``.
    """

    torch_name: ClassVar[str]
    lr: PositiveFloat = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        import torch

        made: torch.optim.Optimizer = getattr(torch.optim, self.torch_name)(
            parameters,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=weight_decay,
            capturable=capturable,
            foreach=not fused,
            fused=fused,
        )
        return made


class Adam(AnyAdam):
    """torch.optim.Adam (Kingma and Ba 2015)."""

    torch_name: ClassVar[str] = "Adam"
    decays: ClassVar[Literal["coupled"]] = "coupled"
    kind: Literal["adam"]
