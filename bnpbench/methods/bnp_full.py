"""Batch normalization preconditioning with the whole covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Fraction, NonNegativeFloat, Positive
from bnpbench.methods.base import Ink
from bnpbench.methods.gradient import GradientPlugin

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.sums import State, Sums


class BnpFull(GradientPlugin):
    """BNP (Lange, Helfrich and Ye 2022, Algorithms 2 and 3) with the covariance of the inputs in place of its diagonal.

    Not in the paper: it is to tell what the diagonal costs. ``Sigma <- rho Sigma + (1 - rho) Sigma_H`` from the
    identity, ``Sigma~ = Sigma + (eps1 max diag Sigma + eps2) I``, ``G_w <- (G_w - G_b mu^T) Sigma~^-1 / q^2`` and
    ``G_b <- G_b / q^2 - G_w mu`` with the new G_w. With a single row ``Sigma_H = (h - mu)(h - mu)^T``, mu the running
    mean before the step. A convolution's Sigma is that of its channels, the same at each tap, group by group. Without a
    trained bias the inverse of Sigma~ + mu mu^T takes the place of the two. Where ``every`` is above 1, Sigma~^-1 is of
    the last refresh; mu and q^2 are the step's.
    """

    ink: ClassVar[Ink] = Ink("#8c2d04", "#e07b39", "H")
    unfolds: ClassVar[bool] = False
    kind: Literal["bnp-full"]
    rho: Fraction = 0.99
    eps1: NonNegativeFloat = 1e-2
    eps2: NonNegativeFloat = 1e-4
    statistics: Literal["running", "batch"] = "running"
    every: Positive = 50

    def start(self, layer: Layer) -> State:
        import torch

        channels = layer.channels // layer.groups
        mean, eye = torch.zeros(layer.groups, channels), torch.eye(channels).repeat(layer.groups, 1, 1)
        own = {"batch_mean": mean.clone(), "batch_covariance": eye.clone()} if self.statistics == "batch" else {}
        return {"mean": mean, "covariance": eye, **own, "scale": torch.ones(()), "inverse": eye.clone()}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        """Sums of the rows less the running mean, over sums of the products of these: (groups, 1 + c, c)."""
        import torch

        shifted = rows - state["mean"].unsqueeze(1)
        return torch.cat([shifted.sum(1, keepdim=True), shifted.mT @ shifted], 1)

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        import torch

        from bnpbench.bnp.algorithms import conv_scale, update_running

        shift, square = sums.inputs[:, 0] / sums.rows, sums.inputs[:, 1:] / sums.rows
        covariance = square - shift.unsqueeze(2) * shift.unsqueeze(1)
        if isinstance(sums.rows, torch.Tensor):
            covariance = torch.where(sums.rows == 1, square, covariance)
        elif sums.rows == 1:
            covariance = square
        mean = state["mean"] + shift
        if self.statistics == "batch":
            state["batch_mean"].copy_(mean)
            state["batch_covariance"].copy_(covariance)
        update_running(state["mean"], mean, self.rho)
        update_running(state["covariance"], covariance, self.rho)
        scale = conv_scale(layer.inputs, sums.examples, sums.positions)  # a dense layer's, too: it has one position
        state["scale"].copy_(scale) if isinstance(scale, torch.Tensor) else state["scale"].fill_(scale)

    def refresh(self, layer: Layer, state: State) -> None:
        from bnpbench.bnp.linear import damped_inverse

        covariance = self._used(state, "covariance")
        largest = covariance.amax((1, 2))  # a covariance matrix has its largest entry on the diagonal
        state["inverse"].copy_(damped_inverse(covariance, largest.double() * self.eps1 + self.eps2))

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        inverse, scale = state["inverse"], state["scale"]
        over_taps = self._used(state, "mean").repeat_interleave(layer.taps, 1).unsqueeze(2)  # mu, (groups, c k^2, 1)
        if bias is not None:
            new = self._times(weight - bias * over_taps.mT, inverse, layer.taps) / scale
            return new, bias / scale - new @ over_taps
        new = self._times(weight, inverse, layer.taps) / scale
        direction = self._times(over_taps.mT, inverse, layer.taps)
        along = new @ over_taps
        return new - along * (direction / (1.0 + direction @ over_taps)), None

    def flops(self, shape: LayerShape) -> int:
        """Ours: ``2 c^2 R + 2 c R + 6 c^2 + 2 c^2 k^2 n' + 5 c k^2 n' + (c^3 + 2 c^2) / every``, R rows of the input.

        By groups. Without a bias ``2 c^2 k^2 - c k^2 n'`` more. The running values take 3 c^2, the covariance as much.
        """
        from bnpbench.bnp.costs import inverse_flops

        c, outputs = shape.channels_in // shape.groups, shape.channels_out // shape.groups
        rows = 2 * c * (c + 1) * shape.rows_in + 6 * c * c
        gradient = c * shape.taps * outputs * (2 * c + 5)
        if not shape.bias:
            gradient += 2 * c * c * shape.taps
        return shape.groups * (rows + gradient + round((inverse_flops(c) + 2 * c * c) / self.every))

    def _used(self, state: State, name: str) -> Tensor:
        return state[f"batch_{name}"] if self.statistics == "batch" else state[name]

    def _times(self, matrix: Tensor, inverse: Tensor, taps: int) -> Tensor:
        """(groups, n', c k^2) times the inverse (groups, c, c) at each tap."""
        if taps == 1:
            return matrix @ inverse
        by_tap: Tensor = matrix.unflatten(2, (-1, taps)).movedim(3, 1)  # (groups, taps, n', c)
        return (by_tap @ inverse.unsqueeze(1)).movedim(1, 3).flatten(2)
