"""Instance normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.errors import NotApplicable
from bnpbench.fields import Position, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.sites import Site, single_value

if TYPE_CHECKING:
    from torch import nn


class InstanceNorm(MethodPlugin):
    """Each channel of an example by the mean and variance of its positions (Ulyanov et al. 2016), with an affine."""

    ink: ClassVar[Ink] = Ink("#7a4fd0", "#b79bf2", ">")
    kind: Literal["instancenorm"]
    eps: PositiveFloat = 1e-5
    position: Position = "post"

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from torch import nn

        if spatial_dims == 0:
            raise NotApplicable(single_value(f"what follows layer {site!r}"))
        norms = nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d
        return norms[spatial_dims - 1](features, eps=self.eps, affine=True)

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.positions

    def lone_value(self, where: str, features: int, examples: int) -> str:
        return single_value(where)
