"""MAC on two rows, by hand."""

from __future__ import annotations

import torch

from bnpbench.methods.mac import Mac
from tests.support.two_rows import rewritten


def test_what_is_orthogonal_to_the_mean_stays() -> None:
    """The mean is (2, 1), and I - a a^T / (rho + 5) with rho = 5 is [[0.6, -0.2], [-0.2, 0.9]]."""
    expected = torch.tensor([[0.6, -0.2], [-0.2, 0.9]], dtype=torch.float64)
    torch.testing.assert_close(rewritten(Mac.made(damping=5.0)), expected)
    across = torch.tensor([1.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(expected @ across, across)


def test_the_mean_of_a_bias_is_one() -> None:
    """a = (1, 2, 1), |a|^2 = 6; with rho = 4 the first row is (0.9, -0.2, -0.1)."""
    first = torch.tensor([0.9, -0.2, -0.1], dtype=torch.float64)
    torch.testing.assert_close(rewritten(Mac.made(damping=4.0), bias=True)[0], first)
