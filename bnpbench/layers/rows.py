"""Layers of rows, over inputs of more dimensions."""

from __future__ import annotations

from torch import Tensor, nn

from bnpbench.layers.four_things import FourThings


class Rows(nn.Module):
    """A layer of rows (R, C) over all positions of its input.

    One with statistics of so many examples of a batch gets the positions of an example together, as it does of images.

    Args:
        norm: the layer.
        dim: the dimension of the features: -1, or 1 of (N, C, ...).
    """

    def __init__(self, norm: nn.Module, dim: int = -1) -> None:
        super().__init__()
        self.norm, self.dim = norm, dim

    def extra_repr(self) -> str:
        """Which dimension, for ``print(model)``."""
        return f"dim={self.dim}"

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (..., C), or (N, C, ...) where ``dim`` is 1."""
        if isinstance(self.norm, FourThings):
            channels = x.movedim(self.dim, 1)
            y: Tensor = self.norm(channels.reshape(len(x), channels.shape[1], -1))
            return y.view_as(channels).movedim(1, self.dim)
        rows = x.movedim(self.dim, -1)
        y = self.norm(rows.reshape(-1, rows.shape[-1]))
        return y.reshape(rows.shape).movedim(-1, self.dim)
