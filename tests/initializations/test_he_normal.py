"""He et al.'s weights."""

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


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_he_normal_has_its_standard_deviation_times_the_factor(factor: float) -> None:
    layers = initialized({"kind": "he-normal", "factor": factor})
    for layer, (_, inputs, taps) in zip(layers, (DENSE, CONV), strict=True):
        sd = factor * sqrt(2 / (inputs * taps))
        scaled = layer.weight.detach() / sd
        assert scaled.std().item() == pytest.approx(1, abs=0.03)
        assert scaled.mean().item() == pytest.approx(0, abs=0.03)
        assert (scaled.abs() < 1).double().mean().item() == pytest.approx(0.6827, abs=0.01)
        assert not layer.bias.any()
