"""Layer normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Position, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.sites import Site, single_value

if TYPE_CHECKING:
    from torch import nn


class OverExamples(MethodPlugin):
    """What methods with layer normalization (Ba et al. 2016) share; epsilon is Keras's.

    Over the features of a row, or over all channels and positions of an example, with an affine a channel.
    """

    eps: PositiveFloat = 1e-3
    position: Position = "post"

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from torch import nn

        if spatial_dims == 0:
            return nn.LayerNorm(features, eps=self.eps)
        return nn.GroupNorm(1, features, eps=self.eps)

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.features * site.positions

    def lone_value(self, where: str, features: int, examples: int) -> str:
        return single_value(where)


class LayerNorm(OverExamples):
    """Layer normalization."""

    ink: ClassVar[Ink] = Ink("#009e73", "#2cc295", "^")
    kind: Literal["ln"]
