"""Norms of random matrices: the laws that are tried, and the scaled norm."""

from __future__ import annotations

import math

import pytest
import torch

from bnpbench.theory.norms import HEAVY, LIGHT, norm_bound, scaled_norm, seginer_sum


@pytest.mark.parametrize(
    ("shape", "norm"),
    [
        ((4, 2), 2.0),  # [e, 0] alone: sqrt(4), q = 1
        ((4, 16), 1.0),  # q^2 = n/N = 4
        ((9, 9), 3.0),
    ],
)
def test_a_matrix_of_zeros_has_the_norm_of_its_column_of_ones(shape: tuple[int, int], norm: float) -> None:
    assert scaled_norm(torch.zeros(shape, dtype=torch.float64)) == pytest.approx(norm)


def test_the_norm_is_the_largest_singular_value_over_q() -> None:
    matrix = torch.randn(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with_ones = torch.cat([torch.ones(3, 1, dtype=torch.float64), matrix], 1)
    assert scaled_norm(matrix) == pytest.approx(torch.linalg.svdvals(with_ones)[0].item() / math.sqrt(12 / 3))


@pytest.mark.parametrize("name", LIGHT)
def test_light_laws_have_mean_0_and_variance_1(name: str) -> None:
    drawn = LIGHT[name](torch.Generator().manual_seed(0), 400, 500)
    assert drawn.shape == (400, 500)
    assert drawn.mean().item() == pytest.approx(0, abs=0.01)
    assert drawn.var().item() == pytest.approx(1, abs=0.02)


def test_students_law_has_its_quartile() -> None:
    """0.7649 with 3 degrees of freedom, over sqrt(3) for a variance of 1."""
    drawn = HEAVY["t with 3 degrees of freedom"](torch.Generator().manual_seed(0), 400, 500)
    assert drawn.abs().median().item() == pytest.approx(0.7649 / math.sqrt(3), abs=0.005)


def test_a_spike_has_the_size_that_makes_its_variance_1() -> None:
    law, generator = HEAVY["one spike of probability 1/Nn"], torch.Generator().manual_seed(0)
    matrices = torch.stack([law(generator, 5, 4) for _ in range(4000)])
    spikes = matrices[matrices != 0]
    torch.testing.assert_close(spikes.abs(), torch.full_like(spikes, math.sqrt(20)))
    assert matrices.square().mean().item() == pytest.approx(1, abs=0.05)


def test_the_bounds_are_those_of_the_statements() -> None:
    assert [norm_bound(batch) for batch in (1, 16, 64)] == [2.0, 8.0, 16.0]
    assert seginer_sum(torch.tensor(3.0), torch.tensor(4.0)).item() == 7.0
