"""The network as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.methods.base import Ink, MethodPlugin, Published

if TYPE_CHECKING:
    from torch import Tensor, nn


class Vanilla(MethodPlugin):
    """The network as it is: no normalization, plain gradients."""

    ink: ClassVar[Ink] = Ink("#333333", "#e4e4e4", "o")
    baseline: ClassVar[int] = 0
    kind: Literal["vanilla"]

    def published(self, model: nn.Module, batch: Tensor) -> Published:
        return Published(0, 0)
