"""Layer normalization."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bnpbench.sites import Site
from tests.support.kinds import made


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 1


@pytest.mark.parametrize("eps", [1e-3, 0.5])
@pytest.mark.parametrize("shape", [(2, 32), (2, 32, 5, 4)])
def test_it_is_over_all_of_an_example(shape: tuple[int, ...], eps: float) -> None:
    norm = made("method", {"kind": "ln", "eps": eps}).layer(32, len(shape) - 2, "x").double()
    x, over = drawn(*shape), tuple(range(1, len(shape)))
    mean, variance = x.mean(over, keepdim=True), x.var(over, correction=0, keepdim=True)
    torch.testing.assert_close(norm(x), (x - mean) / (variance + eps).sqrt())


@pytest.mark.parametrize("spatial_dims", [0, 2])
def test_its_scale_and_shift_are_the_channels(spatial_dims: int) -> None:
    norm = made("method", "ln").layer(6, spatial_dims, "x")
    assert [parameter.shape for parameter in norm.parameters()] == [(6,), (6,)]


def test_it_is_of_no_meaning_over_one_value() -> None:
    method = made("method", "ln")
    assert method.smallest_set(Site("hidden1", 1), examples=60) == 1
    assert method.smallest_set(Site("conv1", 3, positions=16), examples=1) == 48
    assert "'hidden1' sees 1 value at a time, of which it leaves a constant" in method.lone_value("'hidden1'", 1, 60)
