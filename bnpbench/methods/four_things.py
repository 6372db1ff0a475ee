"""Batch normalization with four improvements."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Fraction, NonNegativeFloat, Positive
from bnpbench.methods.base import Decay, Ink
from bnpbench.methods.batch_norm import BatchStatistics
from bnpbench.sites import Misfit, Site

if TYPE_CHECKING:
    from torch import nn


class FourThings(BatchStatistics):
    """Batch normalization with four improvements (Summers and Dinneen 2020), each switchable."""

    ink: ClassVar[Ink] = Ink("#e69f00", "#f2b83a", "X")
    one_device: ClassVar[bool] = True
    kind: Literal["4things"]
    ghost_batch: Positive | None = 16  # examples a ghost batch; absent: the whole batch
    example_weight: Fraction = 0.1  # of the example's own statistics at inference; 0: off
    decay: NonNegativeFloat = 1e-4  # L2 on beta and gamma - 1; 0: off
    # channels a group of the combined GN+BN; where there are fewer (the three of an image), all; absent: BN alone
    group: Positive | None = None

    def channels(self, features: int) -> int:
        """How many of so many channels share statistics."""
        return min(self.group or 1, features)

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import FourThings as Layer

        return Layer(
            features,
            eps=self.eps,
            momentum=self.momentum,
            ghost_batch=self.ghost_batch,
            example_weight=self.example_weight,
            group=None if self.group is None else self.channels(features),
        )

    def decays(self, model: nn.Module) -> list[Decay]:
        from bnpbench.layers import FourThings as Layer

        layers = [module for module in model.modules() if isinstance(module, Layer)]
        if not self.decay or not layers:
            return []
        return [
            Decay(self.decay, [layer.bias for layer in layers]),
            Decay(self.decay, [layer.weight for layer in layers], center=1.0),
        ]

    def undivided(self, layer: str, features: int) -> Misfit | None:
        if not features % self.channels(features):
            return None
        return Misfit(
            f"4things behind layer {layer!r}: {self.group} channels a group do not divide its {features} channels",
            "group",
        )

    def smallest_set(self, site: Site, examples: int) -> int | None:
        ghosts = ceil(examples / (self.ghost_batch or examples))
        return examples // ghosts * self.channels(site.features) * site.positions
