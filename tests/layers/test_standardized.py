"""Weights of mean 0 and variance 1."""

from __future__ import annotations

import torch

from bnpbench.layers import Standardized


def test_each_output_channel_has_mean_0_and_variance_1() -> None:
    weight = torch.randn(5, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 2
    found = Standardized(eps=0.0)(weight)
    torch.testing.assert_close(found.mean((1, 2, 3)), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(found.var((1, 2, 3), correction=0), torch.ones(5, dtype=torch.float64))


def test_equal_weights_become_0() -> None:
    assert torch.equal(Standardized()(torch.ones(2, 3, 1, 1)), torch.zeros(2, 3, 1, 1))
