"""Glorot's weights."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.kinds import made

DENSE, CONV = (200, 300, 1), (64, 32, 9)  # outputs, inputs, taps


def initialized(options: Any, seed: int = 0) -> tuple[nn.Linear, nn.Conv2d]:
    dense, conv = nn.Linear(300, 200), nn.Conv2d(32, 64, 3)
    made("initialization", options).initialize(nn.Sequential(dense, conv), torch.Generator().manual_seed(seed))
    return dense, conv


def test_glorot_is_uniform_between_its_limits() -> None:
    for layer, (outputs, inputs, taps) in zip(initialized("glorot"), (DENSE, CONV), strict=True):
        limit = sqrt(6 / ((inputs + outputs) * taps))
        shares = layer.weight.detach().flatten().histc(10, -limit, limit) / layer.weight.numel()
        assert shares.sum() == pytest.approx(1)
        assert shares.sub(0.1).abs().max() < 0.012
        assert not layer.bias.any()
