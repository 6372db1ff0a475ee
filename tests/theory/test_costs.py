"""The crossing of the costs, and the lean form against Algorithm 2 as matrices."""

from __future__ import annotations

import pytest
import torch

from bnpbench.theory.costs import bn_is_cheaper, lean_step, usual_bn_is_cheaper
from tests.support.oracle import precondition


@pytest.mark.parametrize(
    ("n_out", "last", "last_of_the_usual"),
    [(100, 21, 54), (10, 2, 5), (28, 5, 15)],  # 28 * 6 = 6 * 28: no longer cheaper
)
def test_batch_normalization_is_cheaper_up_to_a_batch_size(n_out: int, last: int, last_of_the_usual: int) -> None:
    assert [bn_is_cheaper(batch, n_out) for batch in (1, last, last + 1)] == [True, True, False]
    found = [usual_bn_is_cheaper(batch, n_out) for batch in (1, last_of_the_usual, last_of_the_usual + 1)]
    assert found == [True, True, False]


@pytest.mark.parametrize(("batch", "n", "n_out"), [(1, 5, 3), (9, 4, 2), (3, 12, 7)])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_lean_step_is_algorithm_2(batch: int, n: int, n_out: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(batch, n, generator=generator, dtype=torch.float64) + 1
    dy = torch.randn(batch, n_out, generator=generator, dtype=torch.float64)
    mean = torch.randn(n, generator=generator, dtype=torch.float64)
    variance = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1
    weight, bias, _ = precondition(dy.T @ h, dy.sum(0), mean, variance, eps1=0.0, eps2=0.0, q2=scale)
    found_weight, found_bias = lean_step(h, dy, mean, variance, scale)
    torch.testing.assert_close(found_weight, weight)
    torch.testing.assert_close(found_bias, bias)
