"""Batch normalization by parts of the batch."""

from __future__ import annotations

import pytest
import torch

from bnpbench.sites import Site
from tests.support.kinds import made


def test_each_part_has_its_own_moments_and_inference_takes_the_running_ones() -> None:
    norm = made("method", {"kind": "ghost-bn", "ghost_batch": 4, "eps": 0.1, "momentum": 1.0}).layer(5, 0, "x").double()
    x = torch.randn(10, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
    parts = x[:4], x[4:7], x[7:]
    expected = [(p - p.mean(0)) / (p.var(0, correction=0) + 0.1).sqrt() for p in parts]
    torch.testing.assert_close(norm(x), torch.cat(expected))
    mean = torch.stack([p.mean(0) for p in parts]).mean(0)
    variance = torch.stack([p.var(0) for p in parts]).mean(0)
    torch.testing.assert_close(norm.eval()(x), (x - mean) / (variance + 0.1).sqrt())


@pytest.mark.parametrize(("ghost", "examples", "smallest"), [(16, 60, 15), (16, 17, 8), (1, 60, 1), (16, 1, 1)])
def test_the_smallest_part(ghost: int, examples: int, smallest: int) -> None:
    method = made("method", {"kind": "ghost-bn", "ghost_batch": ghost})
    assert method.smallest_set(Site("hidden1", 100), examples) == smallest
    assert method.smallest_set(Site("conv1", 8, positions=4), examples) == 4 * smallest
