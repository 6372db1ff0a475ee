"""Group normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.fields import Position, Positive, PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.sites import Misfit, Site, single_value

if TYPE_CHECKING:
    from torch import nn


class Groups(MethodPlugin):
    """What methods with group normalization (Wu and He 2018) share: so many channels each, or so many groups."""

    channels_per_group: Positive = 4
    groups: Positive | None = None  # instead of channels_per_group
    group_eps: PositiveFloat = 1e-5
    position: Position = "post"

    @model_validator(mode="after")
    def _one_way_to_group(self) -> Self:
        if self.groups is not None and self.channels_per_group != 4:
            raise ValueError("give groups or channels_per_group, not both")
        return self

    def number_of_groups(self, features: int) -> int:
        """How many groups so many features fall into, where they divide."""
        return features // self.channels_per_group if self.groups is None else self.groups

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from torch import nn

        return nn.GroupNorm(self.number_of_groups(features), features, eps=self.group_eps)

    def undivided(self, layer: str, features: int) -> Misfit | None:
        if self.groups is None:
            option, rest, asked = "channels_per_group", features % self.channels_per_group, "channels a group"
        else:
            option, rest, asked = "groups", features % self.groups, "groups"
        if not rest:
            return None
        number = getattr(self, option)
        return Misfit(
            f"group normalization behind layer {layer!r}: {number} {asked} do not divide its {features} channels",
            option,
        )

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.features // self.number_of_groups(site.features) * site.positions

    def lone_value(self, where: str, features: int, examples: int) -> str:
        return single_value(where)


class GroupNorm(Groups):
    """Group normalization."""

    ink: ClassVar[Ink] = Ink("#56b4e9", "#a5dcff", "P")
    kind: Literal["gn"]
