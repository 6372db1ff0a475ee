"""The linear algebra of preconditioners."""

from __future__ import annotations

import math

import pytest
import torch

from bnpbench.bnp.linear import damped_inverse, fold_normalized, times, times_rank_one_

F64 = torch.float64


def test_an_inverse_is_damped() -> None:
    rows = torch.randn(2, 7, 4, dtype=F64)
    matrix = rows.mT @ rows
    for damping in (0.0, 0.5, torch.tensor([0.1, 2.0], dtype=F64)):
        shift = torch.as_tensor(damping, dtype=F64).expand(2)[:, None, None] * torch.eye(4, dtype=F64)
        torch.testing.assert_close(damped_inverse(matrix, damping), torch.linalg.inv(matrix + shift))


def test_it_is_computed_in_float64() -> None:
    """In float32 a condition number of 1e9 leaves no digit of the smallest direction."""
    basis = torch.linalg.qr(torch.randn(6, 6, dtype=F64)).Q
    matrix = ((basis * torch.tensor([1e3, 1, 1, 1, 1, 1], dtype=F64)) @ basis.T).float()[None]
    exact = torch.linalg.inv(matrix.double() + 1e-3 * torch.eye(6, dtype=F64))
    assert (damped_inverse(matrix, 1e-3).double() - exact).abs().max() < 1e-6 * exact.abs().max()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_inverse_is_no_number_and_does_not_reach_its_neighbour(bad: float) -> None:
    matrix = torch.eye(3).repeat(2, 1, 1)
    matrix[0, 1, 1] = bad
    found = damped_inverse(matrix, 0.0)
    assert not found[0].isfinite().all()
    assert found[1].equal(torch.eye(3))


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_a_normalized_mean_is_the_weighted_mean_of_all(rho: float) -> None:
    mean, weight, values = torch.full((3,), 5.0, dtype=F64), torch.zeros((), dtype=F64), torch.randn(6, 3, dtype=F64)
    for number, value in enumerate(values, start=1):
        fold_normalized(mean, weight, value, rho)
        shares = torch.tensor([(1 - rho) * rho ** (number - 1 - place) for place in range(number)], dtype=F64)
        torch.testing.assert_close(mean, (shares[:, None] * values[:number]).sum(0) / shares.sum())


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_a_gradient_in_two_parts(bias: bool) -> None:
    weight, columns = torch.randn(2, 3, 4, dtype=F64), 4 + bias
    first = torch.randn(2, 3, 1, dtype=F64) if bias else None
    whole = weight if first is None else torch.cat([first, weight], 2)
    matrix, vector = torch.randn(2, columns, columns, dtype=F64), torch.randn(2, columns, dtype=F64)
    factor = torch.rand(2, dtype=F64)
    rank_one = factor[:, None, None] * vector[:, :, None] * vector[:, None]
    pairs = [(times(weight, first, matrix), whole @ matrix)]
    new = times_rank_one_(weight.clone(), None if first is None else first.clone(), vector, factor, 0.7)
    pairs.append((new, 0.7 * (whole - whole @ rank_one)))
    for (new_weight, new_bias), expected in pairs:
        torch.testing.assert_close(new_weight, expected[..., int(bias) :])
        if bias:
            torch.testing.assert_close(new_bias, expected[..., :1])
