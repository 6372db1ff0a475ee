"""Eva-f on two rows, by hand."""

from __future__ import annotations

import torch

from bnpbench.methods.eva_f import EvaF
from tests.support.two_rows import rewritten


def test_the_inverse_of_rank_one() -> None:
    """The mean is (2, 1): the inverse of [[4, 2], [2, 1]] + 5 I = [[9, 2], [2, 6]] is [[6, -2], [-2, 9]] / 50."""
    expected = torch.tensor([[6.0, -2.0], [-2.0, 9.0]], dtype=torch.float64) / 50
    torch.testing.assert_close(rewritten(EvaF.made(damping=5.0)), expected)


def test_the_mean_of_a_bias_is_one() -> None:
    """a = (1, 2, 1): (I - a a^T / 10) / 4 has the first row (0.9, -0.2, -0.1) / 4."""
    first = torch.tensor([0.9, -0.2, -0.1], dtype=torch.float64) / 4
    torch.testing.assert_close(rewritten(EvaF.made(damping=4.0), bias=True)[0], first)
