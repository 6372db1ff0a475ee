"""Batch normalization by parts of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Positive
from bnpbench.methods.base import Ink
from bnpbench.methods.batch_norm import BatchStatistics
from bnpbench.sites import Site

if TYPE_CHECKING:
    from torch import nn


class GhostBatchNorm(BatchStatistics):
    """Batch normalization whose statistics are of parts of the batch (Hoffer, Hubara, Soudry 2017).

    Attributes:
        ghost_batch: examples of a part, at most; the parts of a batch differ by one at most.
    """

    one_device: ClassVar[bool] = True
    ink: ClassVar[Ink] = Ink("#8a5a00", "#cf9a3d", "d")
    kind: Literal["ghost-bn"]
    ghost_batch: Positive = 16

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import FourThings

        return FourThings(
            features, eps=self.eps, momentum=self.momentum, ghost_batch=self.ghost_batch, example_weight=0.0
        )

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return examples // -(-examples // self.ghost_batch) * site.positions
