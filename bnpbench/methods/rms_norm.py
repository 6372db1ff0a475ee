"""Normalization by the root mean square."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Position, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.sites import Site, single_value

if TYPE_CHECKING:
    from torch import nn


class RmsNorm(MethodPlugin):
    """Layer normalization without a mean and a bias (Zhang and Sennrich 2019).

    Over the features of a row, or over all channels and positions of an example, with a scale a channel.
    """

    ink: ClassVar[Ink] = Ink("#6b8e23", "#a9cc58", "<")
    kind: Literal["rmsnorm"]
    eps: PositiveFloat = 1e-6
    position: Position = "post"

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from torch import nn

        from bnpbench.layers import RmsNorm as Layer

        return nn.RMSNorm(features, eps=self.eps) if spatial_dims == 0 else Layer(features, eps=self.eps)

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.features * site.positions

    def lone_value(self, where: str, features: int, examples: int) -> str:
        return single_value(where)
