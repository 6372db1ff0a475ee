"""K-FAC: natural gradients by a Kronecker product for each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import NonNegativeFloat, Positive
from bnpbench.methods.base import Ink
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.sites import Misfit

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums
    from bnpbench.methods.preconditioning import Training


class Kfac(GradientPlugin):
    """K-FAC (Martens and Grosse 2015, arXiv 1503.05671): ``(B + sqrt(l)/pi I)^-1 G (A + pi sqrt(l) I)^-1``.

    A is a running mean of E[h^ h^^T] and B of E[b b^T], b the gradient of one label's -log p at the output of the layer
    (equation 1 and section 4.2, block-diagonal); l is ``damping``, factored as in section 6.3. The weight of the past
    in the k-th step is min(1 - 1/k, rho) (section 5), and the inverses are computed every so many steps (section 8).
    ``fisher`` says whose labels: ``sampled`` draws one for each prediction from the model, as the paper does, which
    takes a further backward pass; ``exact`` takes the expectation over all of them by a pass for each class;
    ``empirical`` takes the data's, from the step's own pass, and is then no Fisher.

    Of a convolution A is the mean over positions and examples of the patches' products, and B the sum over positions
    (Grosse and Martens 2016, arXiv 1602.01407, Theorem 1: Omega / T and T Gamma of its T positions, whose product is
    the same and is damped the same). Dense layers that are applied to tokens are taken likewise.

    Of the paper's optimizer this is the preconditioner: momentum, learning rate and the damping's schedule (sections
    6.4 to 7) are those of the optimizer and the suite.
    """

    ink: ClassVar[Ink] = Ink("#00796b", "#3fc1ae", "^")
    gradients: ClassVar[bool] = True
    kind: Literal["kfac"]
    fisher: Literal["sampled", "exact", "empirical"] = "sampled"
    damping: NonNegativeFloat = 3e-2
    every: Positive = 20

    def start(self, layer: Layer) -> State:
        import torch

        inputs = torch.zeros(layer.groups, layer.columns, layer.columns)
        outputs = torch.zeros(layer.groups, *2 * (layer.outputs // layer.groups,))
        inverses = {"inputs_inverse": inputs.clone(), "outputs_inverse": outputs.clone()}
        return {"inputs": inputs, "outputs": outputs, **inverses, "folds": torch.zeros(())}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        return rows.mT @ rows

    def output_sums(self, layer: Layer, state: State, grads: Tensor) -> Tensor:
        return grads.mT @ grads

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        folds = state["folds"].add_(1.0)
        new = (1.0 / folds).clamp(min=1.0 - self.rho)  # 1 - min(1 - 1/k, rho)
        # A gradient of the mean loss is b over the number of labels; one of the sum over them is b.
        per_label = sums.labels if self.fisher == "empirical" else 1.0 / sums.labels
        state["inputs"].lerp_(sums.inputs / sums.rows, new)
        if sums.outputs is not None:
            state["outputs"].lerp_(sums.outputs * per_label, new)

    def refresh(self, layer: Layer, state: State) -> None:
        from bnpbench.bnp.kronecker import factored_inverses

        inputs, outputs = factored_inverses(state["inputs"], state["outputs"], self.damping)
        state["inputs_inverse"].copy_(inputs)
        state["outputs_inverse"].copy_(outputs)

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        from bnpbench.bnp.linear import times

        outputs = state["outputs_inverse"]
        return times(outputs @ weight, None if bias is None else outputs @ bias, state["inputs_inverse"])

    def input_matrix(self, layer: Layer, state: State) -> Tensor:
        return state["inputs_inverse"]

    def backwards(self, classes: int) -> int:
        return {"sampled": 1, "exact": classes, "empirical": 0}[self.fisher]

    def objective(self, output: Tensor, number: int, draw: Tensor) -> Tensor:
        from bnpbench.bnp.fisher import of_class, of_drawn

        return of_drawn(output, draw) if self.fisher == "sampled" else of_class(output, number)

    def refuses(self, training: Training) -> Misfit | None:
        """Also another loss than the cross-entropy, unless the labels are the data's: the model draws no others."""
        if self.looks_back and not training.entropy:
            return Misfit(
                f'{self.kind} draws labels from the softmax, which is for the cross-entropy; take "empirical"', "fisher"
            )
        return super().refuses(training)

    def flops(self, shape: LayerShape) -> int:
        """Ours: ``m^2 (2 R + 4) + 4 o^2 + 2 o^2 m + 2 o m^2 + (m^3 + 2 m^2 + o^3 + 2 o^2 + ...) / every``, by groups.

        m columns, o outputs, R rows of the output; with a bias o m less. From the step's own gradients 2 R o^2 more.
        """
        from bnpbench.bnp.costs import inverse_flops

        m, o = shape.columns, shape.channels_out // shape.groups
        each = m * m * (2 * shape.rows_out + 4) + 4 * o * o + 2 * o * o * m + o * m * (2 * m - shape.bias)
        refresh = sum(inverse_flops(n) + 2 * n * n + n for n in (m, o)) + 3  # and the traces, and pi
        own = 0 if self.looks_back else self.pass_flops(shape)
        return shape.groups * each + round(shape.groups * refresh / self.every) + own

    def pass_flops(self, shape: LayerShape) -> int:
        """``2 R o^2``, by groups."""
        return 2 * shape.rows_out * shape.channels_out**2 // shape.groups
