"""What preconditioners share that know of a layer's inputs only their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bnpbench.methods.gradient import GradientPlugin

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State


class RankOne(GradientPlugin):
    """``scale G (I - v v^T / (damping + |v|^2))``, v a running mean of h^: over the positions of a convolution, too.

    By the formula of Sherman and Morrison that is ``scale damping G (v v^T + damping I)^-1``. What is refreshed is v.
    """

    damping: float

    @property
    def scale(self) -> float:
        """What the whole is multiplied by."""
        return 1.0

    def start(self, layer: Layer) -> State:
        import torch

        mean = torch.zeros(layer.groups, layer.columns)
        return {"mean": mean, "weight": torch.zeros(()), "vector": mean.clone(), "factor": torch.zeros(layer.groups)}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        return rows.sum(1)

    def refresh(self, layer: Layer, state: State) -> None:
        state["vector"].copy_(state["mean"])
        state["factor"].copy_(1.0 / (state["mean"].square().sum(1) + self.damping))

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        from bnpbench.bnp.linear import times_rank_one_

        return times_rank_one_(weight, bias, state["vector"], state["factor"], self.scale)

    def flops(self, shape: LayerShape) -> int:
        """Ours: ``m R + 4 m + 4 m n' + 2 m / every``, m columns, R rows of the output; scaled, m n' more."""
        m, passes = shape.columns, 4 if self.scale == 1 else 5
        each = m * (shape.rows_out + 4 + passes * (shape.channels_out // shape.groups))
        return shape.groups * (each + round(2 * m / self.every))
