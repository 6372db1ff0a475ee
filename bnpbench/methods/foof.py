"""FOOF: gradient descent on neurons."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import NonNegativeFloat, Positive
from bnpbench.methods.base import Ink
from bnpbench.methods.gradient import GradientPlugin

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums


class Foof(GradientPlugin):
    """FOOF (Benzing 2022, arXiv 2201.12250): ``G (A + lambda I)^-1``, A a running mean of E[h^ h^^T].

    Equation (6) of the paper, its Algorithm 1 with T = ``every`` and S = T: the mean is taken of every step's rows,
    normalized as in its appendix D.1, and the inverse is computed every so many steps. Of a convolution A is
    E[sum over positions of the patches' products] (Grosse and Martens 2016, Omega), as in the author's code. The paper
    leaves open whether A is divided by the number of examples, which its code does not do for dense layers: here it is.
    """

    ink: ClassVar[Ink] = Ink("#0b6e99", "#4fb3dd", "<")
    kind: Literal["foof"]
    damping: NonNegativeFloat = 1e-2
    every: Positive = 50

    def start(self, layer: Layer) -> State:
        import torch

        zeros = torch.zeros(layer.groups, layer.columns, layer.columns)
        return {"second_moment": zeros, "weight": torch.zeros(()), "inverse": zeros.clone()}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        return rows.mT @ rows

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        from bnpbench.bnp.linear import fold_normalized

        fold_normalized(state["second_moment"], state["weight"], sums.inputs / sums.examples, self.rho)

    def refresh(self, layer: Layer, state: State) -> None:
        from bnpbench.bnp.linear import damped_inverse

        state["inverse"].copy_(damped_inverse(state["second_moment"], self.damping))

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        from bnpbench.bnp.linear import times

        return times(weight, bias, state["inverse"])

    def input_matrix(self, layer: Layer, state: State) -> Tensor:
        return state["inverse"]

    def flops(self, shape: LayerShape) -> int:
        """Ours: ``2 m^2 (R + n' + 2) + (m^3 + 2 m^2) / every``, m columns and R rows of the output, by groups."""
        from bnpbench.bnp.costs import inverse_flops

        m, every_step = shape.columns, 2 * shape.rows_out + 4 + 2 * shape.channels_out // shape.groups
        return shape.groups * (m * m * every_step + round((inverse_flops(m) + 2 * m * m) / self.every))
