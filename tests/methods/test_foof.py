"""FOOF on two rows, by hand."""

from __future__ import annotations

import torch

from bnpbench.methods.foof import Foof
from tests.support.two_rows import rewritten


def test_the_inverse_of_the_second_moment() -> None:
    """A = [[5, 3], [3, 2]] of the rows (1, 0) and (3, 2), whose inverse is [[2, -3], [-3, 5]]."""
    expected = torch.tensor([[2.0, -3.0], [-3.0, 5.0]], dtype=torch.float64)
    torch.testing.assert_close(rewritten(Foof.made(damping=0.0)), expected)


def test_a_bias_is_a_column_of_ones() -> None:
    """A = [[1, 2, 1], [2, 5, 3], [1, 3, 2]] has no inverse; with lambda = 1 it is that of A + I."""
    moment = torch.tensor([[1.0, 2, 1], [2, 5, 3], [1, 3, 2]], dtype=torch.float64)
    expected = torch.linalg.inv(moment + torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(rewritten(Foof.made(damping=1.0), bias=True), expected)
