"""The weights that a network is built with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.initializations.base import InitializationPlugin

if TYPE_CHECKING:
    import torch
    from torch import nn


class Keep(InitializationPlugin):
    """The weights that the network is built with, under the cell's seed: its author's, or pretrained ones."""

    keeps: ClassVar[bool] = True
    kind: Literal["keep"]

    def initialize(self, model: nn.Module, generator: torch.Generator, *, whole: bool = False) -> None:
        """Nothing is drawn."""
