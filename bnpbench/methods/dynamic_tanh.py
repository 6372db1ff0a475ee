"""Dynamic tanh."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Position, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin

if TYPE_CHECKING:
    from torch import nn


class DynamicTanh(MethodPlugin):
    """A squashing instead of a normalization (Zhu et al. 2025, arXiv 2503.10622): it takes no statistics.

    Attributes:
        alpha: where the factor inside the tanh, which is trained, starts.
    """

    ink: ClassVar[Ink] = Ink("#b3003c", "#f26a8d", "*")
    kind: Literal["dyt"]
    alpha: PositiveFloat = 0.5
    position: Position = "post"

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import DynamicTanh as Layer

        return Layer(features, alpha=self.alpha)
