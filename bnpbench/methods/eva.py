"""Eva: K-FAC of rank one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Fraction, PositiveFloat
from bnpbench.methods.base import Ink
from bnpbench.methods.gradient import GradientPlugin

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums


class Eva(GradientPlugin):
    """Eva (Zhang, Shi and Li 2023, arXiv 2308.02123): the inverse of ``(b b^T) (x) (a a^T) + gamma I`` times G.

    By Sherman and Morrison that is ``(G - (b^T G a) / (gamma + |a|^2 |b|^2) b a^T) / gamma``; a is a running mean of h^
    and b of the gradient of one label's loss at the output of the layer; gamma is ``damping`` here. Both start with the
    first step's. The authors' code gives the newest step a weight of 0.95, which is what ``rho`` = 0.05 says.

    Of a convolution a is the mean over positions and examples of the patches, and b the sum over positions, as a bias's
    gradient is: so b a^T is the gradient itself where all rows are alike. (Their code takes the mean over positions,
    and the gradient of the mean loss, which is smaller by the number of examples.) Their clipping of the step by its KL
    divergence is no part of this.
    """

    ink: ClassVar[Ink] = Ink("#c2185b", "#f06c9b", "d")
    gradients: ClassVar[bool] = True
    kind: Literal["eva"]
    rho: Fraction = 0.05
    damping: PositiveFloat = 3e-2

    def start(self, layer: Layer) -> State:
        import torch

        inputs, outputs = torch.zeros(layer.groups, layer.columns), torch.zeros(layer.outputs).view(layer.groups, -1)
        vectors = {"a": inputs.clone(), "b": outputs.clone()}
        return {"inputs": inputs, "outputs": outputs, "begun": torch.zeros(()), **vectors}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        return rows.sum(1)

    def output_sums(self, layer: Layer, state: State, grads: Tensor) -> Tensor:
        return grads.sum(1)

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        new = 1.0 - self.rho * state["begun"]
        state["inputs"].lerp_(sums.inputs / sums.rows, new)
        if sums.outputs is not None:  # of the mean loss: already a mean over labels
            state["outputs"].lerp_(sums.outputs, new)
        state["begun"].fill_(1.0)

    def refresh(self, layer: Layer, state: State) -> None:
        state["a"].copy_(state["inputs"])
        state["b"].copy_(state["outputs"])

    def rewrite(self, layer: Layer, state: State, gradient: Tensor) -> Tensor:
        from bnpbench.bnp.kronecker import rank_one

        return rank_one(gradient, state["a"], state["b"], self.damping)

    def input_matrix(self, layer: Layer, state: State) -> Tensor:
        """What multiplies a gradient whose columns are along b; across b it is divided by gamma."""
        import torch

        a, of_b = state["a"], state["b"].square().sum(1).view(-1, 1, 1)
        eye = torch.eye(layer.columns, dtype=a.dtype, device=a.device)
        along = a.unsqueeze(2) * a.unsqueeze(1) * of_b
        return (eye - along / (self.damping + a.square().sum(1).view(-1, 1, 1) * of_b)) / self.damping

    def flops(self, shape: LayerShape) -> int:
        """Ours: ``R (m + o) + 5 m o + 8 m + 6 o + 3`` by groups, m columns, o outputs, R rows of the output."""
        m, o = shape.columns, shape.channels_out // shape.groups
        return shape.groups * (shape.rows_out * (m + o) + 5 * m * o + 8 * m + 6 * o + 3)
