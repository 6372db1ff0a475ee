"""Filter response normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.errors import NotApplicable
from bnpbench.fields import Position, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.sites import Site, single_value

if TYPE_CHECKING:
    from torch import nn


class FilterResponseNorm(MethodPlugin):
    """Each channel of an example by the root mean square of its positions, and a learned threshold instead of the ReLU.

    Source: Singh and Krishnan 2020, arXiv 1911.09737. It stands between a layer and its activation. Where something
    else than one ReLU follows, as the sum with a shortcut, the layer has no threshold and what follows stays.

    Attributes:
        eps: added to the mean square.
        tlu: whether the threshold, max(y, τ), takes the place of the ReLU; else that stays.
    """

    position: ClassVar[Position] = "pre"
    ink: ClassVar[Ink] = Ink("#a65628", "#d99a6c", ">")
    kind: Literal["frn"]
    eps: PositiveFloat = 1e-6
    tlu: bool = True

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import FilterResponseNorm as Layer

        if spatial_dims == 0:
            raise NotApplicable(single_value(f"what follows layer {site!r}"))
        return Layer(features, eps=self.eps)

    def finish(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        from bnpbench.layers import threshold

        if self.tlu:
            threshold(model, input_shape)

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.positions

    def lone_value(self, where: str, features: int, examples: int) -> str:
        return single_value(where)
