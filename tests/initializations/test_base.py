"""Initial weights: their distributions, and that nothing but the generator decides them."""

from __future__ import annotations

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
