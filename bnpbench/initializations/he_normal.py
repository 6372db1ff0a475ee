"""He et al.'s initialization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bnpbench.fields import PositiveFloat
from bnpbench.initializations.base import InitializationPlugin

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class HeNormal(InitializationPlugin):
    """He normal weights (fan in; He et al. 2015) times ``factor``, zero bias."""

    kind: Literal["he-normal"]
    factor: PositiveFloat = 1.0

    def draw(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        from torch import nn

        return nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator).mul_(self.factor)
