"""Initial weights: their distributions, and that nothing but the generator decides them."""

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


@pytest.mark.parametrize("options", ["glorot", "he-normal"])
def test_the_generator_alone_decides(options: str) -> None:
    torch.manual_seed(5)
    first = initialized(options)
    torch.manual_seed(6)
    again, other = initialized(options), initialized(options, seed=1)
    for one, same, different in zip(first, again, other, strict=True):
        assert torch.equal(one.weight, same.weight)
        assert not torch.equal(one.weight, different.weight)


def test_the_device_changes_nothing_that_is_drawn() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(0)
    made("initialization", "glorot").initialize(model, generator)
    assert model[0].weight.is_meta
