"""Glorot's initialization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bnpbench.initializations.base import InitializationPlugin

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Glorot(InitializationPlugin):
    """Glorot uniform weights (Glorot and Bengio 2010), zero bias."""

    kind: Literal["glorot"]

    def draw(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        from torch import nn

        return nn.init.xavier_uniform_(weight, generator=generator)
