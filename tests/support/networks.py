"""Networks with the normalization of a method, as a suite names both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bnpbench.sites import Normalization
from tests.support.kinds import made

CIFAR = (3, 32, 32)


def network_of(network: Any, method: Any, shape: tuple[int, ...] = CIFAR, classes: int = 10) -> nn.Module:
    """On ``meta``."""
    with torch.device("meta"):
        built: nn.Module = made("network", network).built(normalization(method), shape, classes)
    return built


def normalization(method: Any) -> Normalization:
    """What a method puts into a network."""
    m = made("method", method)
    if not m.normalizes():
        return Normalization()
    return Normalization(m.stands, m.layer, conv_bias=m.preconditions(), input=m.normalizes_input)


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def asked_for(network: Any, position: Any, shape: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """Where a network asks for a normalization as it is built: layer, features, positions of its map.

    Found by building it with markers and running it once, on ``meta``.
    """
    found: list[tuple[str, int, int]] = []

    class Marker(nn.Module):
        def __init__(self, features: int, spatial_dims: int, site: str) -> None:
            super().__init__()
            self.features, self.spatial_dims, self.site = features, spatial_dims, site

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[1] == self.features
            assert x.dim() == 2 + self.spatial_dims
            found.append((self.site, self.features, x[0, 0].numel()))
            return x

    options = made("network", network)
    with torch.device("meta"):
        model = options.built(Normalization(position, Marker), shape, 10)
        model(torch.empty(2, *options.reads(shape)))
    return found
