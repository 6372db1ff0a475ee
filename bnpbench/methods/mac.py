"""MAC: the curvature by the mean activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import PositiveFloat
from bnpbench.methods.base import Ink
from bnpbench.methods.rank_one import RankOne

if TYPE_CHECKING:
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums


class Mac(RankOne):
    """MAC (Seung, Lee and Ko 2025, arXiv 2506.08464): ``G (I - a a^T / (rho + |a|^2))``, a a running mean of h^.

    The step that the paper derives by Sherman and Morrison from ``(a a^T + rho I)^-1``, times rho, so that what is
    orthogonal to a stays as it is; rho is ``damping`` here. The mean is normalized, as in the authors' code, and taken
    of every step's rows. That code gives the first layer the whole matrix of the training set; here it has rank one, as
    the others. Attention scores are not used.
    """

    ink: ClassVar[Ink] = Ink("#6a3d9a", "#a680d6", "P")
    kind: Literal["mac"]
    damping: PositiveFloat = 1.0

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        from bnpbench.bnp.linear import fold_normalized

        fold_normalized(state["mean"], state["weight"], sums.inputs / sums.rows, self.rho)
