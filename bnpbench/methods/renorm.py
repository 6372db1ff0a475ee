"""Batch renormalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.methods.base import Ink
from bnpbench.methods.batch_norm import BatchStatistics

if TYPE_CHECKING:
    from torch import nn


class Renorm(BatchStatistics):
    """Batch renormalization (Ioffe 2017); ``clipped`` follows its schedule of r_max and d_max."""

    ink: ClassVar[Ink] = Ink("#cc79a7", "#e3a0c4", "v")
    one_device: ClassVar[bool] = True
    kind: Literal["renorm"]
    clipped: bool = True

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import BatchRenorm

        return BatchRenorm(features, eps=self.eps, momentum=self.momentum, clipped=self.clipped)
