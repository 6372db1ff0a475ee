"""Instance normalization."""

from __future__ import annotations

import pytest
import torch

from bnpbench.errors import NotApplicable
from bnpbench.sites import Site
from tests.support.kinds import made


def test_each_channel_of_an_example_has_its_own_moments() -> None:
    norm = made("method", {"kind": "instancenorm", "eps": 0.1}).layer(6, 2, "x").double()
    x = torch.randn(3, 6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
    mean, variance = x.mean((2, 3), keepdim=True), x.var((2, 3), correction=0, keepdim=True)
    torch.testing.assert_close(norm(x), (x - mean) / (variance + 0.1).sqrt())
    assert [tuple(p.shape) for p in norm.parameters()] == [(6,), (6,)]


def test_a_row_has_one_value_a_feature() -> None:
    method = made("method", "instancenorm")
    assert method.smallest_set(Site("hidden1", 100), examples=60) == 1
    assert method.smallest_set(Site("conv1", 32, positions=9), examples=1) == 9
    with pytest.raises(NotApplicable, match="single value: what follows layer 'hidden1' sees 1 value"):
        method.layer(100, 0, "hidden1")
