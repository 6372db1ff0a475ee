"""Normalization by the root mean square."""

from __future__ import annotations

import torch

from bnpbench.sites import Site
from tests.support.kinds import made


def test_an_example_is_divided_by_its_root_mean_square() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 6), (3, 6, 4), (3, 6, 4, 5), (2, 6, 2, 3, 4)):
        norm = made("method", {"kind": "rmsnorm", "eps": 0.1}).layer(6, len(shape) - 2, "x").double()
        x = torch.randn(shape, dtype=torch.float64, generator=generator) * 2 + 1
        scale = torch.randn(6, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            norm.weight.copy_(scale)
        expected = [one * scale.view(-1, *[1] * (one.ndim - 1)) / (one.square().mean() + 0.1).sqrt() for one in x]
        torch.testing.assert_close(norm(x), torch.stack(expected))


def test_a_single_value_is_no_set() -> None:
    method = made("method", "rmsnorm")
    assert method.smallest_set(Site("hidden1", 1), examples=60) == 1
    assert method.smallest_set(Site("conv1", 3, positions=9), examples=1) == 27
    assert "single value" in method.lone_value("layer 'x'", 1, 60)
