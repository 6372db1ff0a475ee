"""What a network asks for at each place where a normalization may stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

Maker = Callable[[int, int, str], nn.Module]


@dataclass(frozen=True)
class Normalization:
    """Where a method puts its normalization, and how one is made.

    Attributes:
        position: ``"post"``: behind the activation (and the pooling), so that it normalizes the
            input of the next layer; ``"pre"``: between a layer and its activation; None: nowhere.
            Residual networks have their normalization at its standard place whatever the position.
        maker: makes the layer for ``features`` channels, ``spatial_dims`` dimensions behind them
            (0: rows of features) and ``site``, the name of the layer that it follows; None: nothing is put there.
        conv_bias: whether the convolutions of a residual network get a bias, which they lack under BN.
        input: whether one stands before the first layer, too.
    """

    position: Literal["post", "pre"] | None = None
    maker: Maker | None = None
    conv_bias: bool = True
    input: bool = False

    def make(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        """The normalization behind the layer ``site``; the identity where the method has none.

        Raises:
            NotApplicable: an option that does not fit ``features``; names ``site``.
        """
        return nn.Identity() if self.maker is None else self.maker(features, spatial_dims, site)
