"""Dynamic tanh."""

from __future__ import annotations

import torch

from bnpbench.sites import Site
from tests.support.kinds import made


def test_it_squashes_each_value_by_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 6), (3, 6, 4, 5)):
        layer = made("method", {"kind": "dyt", "alpha": 0.8}).layer(6, len(shape) - 2, "x").double()
        x = torch.randn(shape, dtype=torch.float64, generator=generator)
        weight, bias = torch.randn(2, 6, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        by_channel = (6, *[1] * (len(shape) - 2))
        expected = weight.view(by_channel) * torch.tanh(torch.tensor(0.8).double() * x) + bias.view(by_channel)
        torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)


def test_it_has_a_meaning_for_a_single_value() -> None:
    assert made("method", "dyt").smallest_set(Site("hidden1", 1), examples=1) is None
