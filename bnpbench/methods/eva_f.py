"""Eva-f: FOOF with a matrix of rank one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Fraction, PositiveFloat
from bnpbench.methods.base import Ink
from bnpbench.methods.rank_one import RankOne

if TYPE_CHECKING:
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums


class EvaF(RankOne):
    """Eva-f (Zhang, Shi and Li 2023, arXiv 2308.02123): ``G (a a^T + gamma I)^-1``, a a running mean of h^.

    By Sherman and Morrison ``(G - G a a^T / (gamma + |a|^2)) / gamma``; gamma is ``damping`` here. It is Eva without
    the vector of the output's side, as FOOF is K-FAC without the matrix. The running mean starts with the first step's
    and gives the newest a weight of 0.95, as in the authors' code of Eva. Their clipping of the step by its KL
    divergence is no part of this.
    """

    ink: ClassVar[Ink] = Ink("#b15928", "#d98e5f", "p")
    kind: Literal["eva-f"]
    damping: PositiveFloat = 3e-2
    rho: Fraction = 0.05

    @property
    def scale(self) -> float:
        return 1.0 / self.damping

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        begun = state["weight"]
        state["mean"].lerp_(sums.inputs / sums.rows, 1.0 - self.rho * begun)
        begun.fill_(1.0)
