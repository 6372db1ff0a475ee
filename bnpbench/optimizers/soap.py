"""SOAP."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from bnpbench.fields import Fraction, Positive, PositiveFloat
from bnpbench.optimizers.library import LibraryOptimizer


class Soap(LibraryOptimizer):
    """pytorch_optimizer.SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024).

    Its first step only takes statistics. A convolution's kernel has one factor for each of its dimensions.

    Attributes:
        every: steps between two updates of the eigenbases.
        max_dim: a dimension with more entries keeps its own basis.
    """

    library_name: ClassVar[str] = "SOAP"
    decays: ClassVar[Literal["decoupled"]] = "decoupled"
    kind: Literal["soap"]
    lr: PositiveFloat = 3e-3
    betas: tuple[Fraction, Fraction] = (0.95, 0.95)
    eps: PositiveFloat = 1e-8
    every: Positive = 10
    max_dim: Positive = 10_000

    def options(self) -> dict[str, Any]:
        return {
            "betas": self.betas,
            "eps": self.eps,
            "precondition_frequency": self.every,
            "max_precondition_dim": self.max_dim,
        }
