"""Both factors, damped and inverted, against the explicit product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bnpbench.bnp.kronecker import factored_inverses, rank_one
from tests.support import curvature as c


def moments(groups: int, size: int, seed: int) -> Tensor:
    rows = torch.randn(groups, size + 2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows.mT @ rows


@pytest.mark.parametrize("damping", [0.0, 0.03, 5.0])
def test_factored_damping(damping: float) -> None:
    A, B, G = moments(3, 4, 0), moments(3, 2, 1) * 1e-4, torch.randn(3, 2, 4, dtype=torch.float64)
    inputs, outputs = factored_inverses(A, B, damping)
    for found, *known in zip(outputs @ G @ inputs, G, A, B, strict=True):
        expected = c.kfac(*known, damping)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * expected.abs().max().item())


def test_where_a_factor_is_zero_the_damping_is_divided_evenly() -> None:
    """The gradients of a layer that nothing listens to: what is left is the gradient over the damping."""
    A, zero, G = moments(1, 4, 0), torch.zeros(1, 2, 2).double(), torch.randn(1, 2, 4).double()
    inputs, outputs = factored_inverses(A, zero, 0.04)
    torch.testing.assert_close(outputs, torch.eye(2).double()[None] / 0.2)
    torch.testing.assert_close(inputs, torch.linalg.inv(A + 0.2 * torch.eye(4)))
    inputs, outputs = factored_inverses(torch.zeros(1, 4, 4).double(), zero, 0.04)
    torch.testing.assert_close(outputs @ G @ inputs, G / 0.04)


def test_what_is_not_positive_definite_is_not_a_number() -> None:
    flat = torch.ones(1, 3, 3).double()
    inputs, outputs = factored_inverses(flat, moments(1, 2, 0), 0.0)
    assert inputs.isnan().all()
    assert not outputs.isnan().any()
    assert factored_inverses(flat * torch.nan, moments(1, 2, 0), 0.1)[0].isnan().all()


@pytest.mark.parametrize("damping", [1e-3, 0.5])
def test_rank_one(damping: float) -> None:
    torch.manual_seed(0)
    G, a, b = torch.randn(3, 2, 4).double(), torch.randn(3, 4).double(), torch.randn(3, 2).double()
    before = G.clone()
    for found, *known in zip(rank_one(G, a, b, damping), G, a, b, strict=True):
        torch.testing.assert_close(found, c.eva(*known, damping), rtol=0, atol=1e-9 * found.abs().max().item())
    assert torch.equal(G, before)


def test_rank_one_of_zeros_is_the_gradient_over_the_damping() -> None:
    G = torch.randn(1, 2, 4).double()
    torch.testing.assert_close(rank_one(G, torch.zeros(1, 4).double(), torch.randn(1, 2).double(), 0.5), G / 0.5)
