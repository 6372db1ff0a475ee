"""BNP with the whole covariance on two rows, by hand."""

from __future__ import annotations

import torch

from bnpbench.methods.bnp_full import BnpFull
from tests.support.two_rows import rewritten


def test_the_covariance_with_the_mean_taken_out() -> None:
    """The batch's mean is (2, 1), its covariance [[1, 1], [1, 1]], which eps2 = 1 makes [[2, 1], [1, 2]]."""
    method = BnpFull.made(statistics="batch", eps1=0.0, eps2=1.0)
    inverse = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64) / 3
    mean = torch.tensor([2.0, 1.0], dtype=torch.float64)
    found = rewritten(method, bias=True)
    torch.testing.assert_close(found[1:, 1:], inverse)
    torch.testing.assert_close(found[0, 1:], -mean @ inverse)
    torch.testing.assert_close(found[0, 0], 1 + mean @ inverse @ mean)


def test_without_a_bias_the_mean_is_part_of_the_matrix() -> None:
    """[[2, 1], [1, 2]] + [[4, 2], [2, 1]] = [[6, 3], [3, 3]], whose inverse is [[1, -1], [-1, 2]] / 3."""
    expected = torch.tensor([[1.0, -1.0], [-1.0, 2.0]], dtype=torch.float64) / 3
    torch.testing.assert_close(rewritten(BnpFull.made(statistics="batch", eps1=0.0, eps2=1.0)), expected)


def test_running_values_start_at_the_identity() -> None:
    """Half of it, and half of [[1, 1], [1, 1]], with half the mean, (1, 0.5)."""
    method = BnpFull.made(rho=0.5, eps1=0.0, eps2=0.0)
    mean = torch.tensor([1.0, 0.5], dtype=torch.float64)
    covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(rewritten(method), torch.linalg.inv(covariance + torch.outer(mean, mean)))
