"""Batch normalization preconditioning."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.methods.base import Ink, MethodPlugin, Published
from bnpbench.methods.preconditioning import Preconditioning, Training

if TYPE_CHECKING:
    from torch import Tensor, nn


class Bnp(MethodPlugin, Preconditioning):
    """Batch normalization preconditioning (Lange, Helfrich and Ye 2022) of a network without normalization."""

    preconditioned: ClassVar[bool] = True
    subject: ClassVar[bool] = True
    ink: ClassVar[Ink] = Ink("#d55e00", "#f5853f", "D")
    kind: Literal["bnp"]

    def published(self, model: nn.Module, batch: Tensor) -> Published:
        """Proposition 6 and its like for convolutions; ablations have no formula."""
        from bnpbench.bnp.costs import predicted, tracked_shapes
        from bnpbench.measure.flops import count_plain_bnp

        if not (self.scale and self.center and self.standardize):
            return Published()
        bnp = self.bnp(model, Training(len(batch)))
        shapes = tracked_shapes(bnp, model, batch)
        bnp.remove()
        return Published(sum(map(predicted, shapes)), sum(map(count_plain_bnp, shapes)))
