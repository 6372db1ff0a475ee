"""What centring and scaling gain."""

from __future__ import annotations

import pytest
import torch

from bnpbench.theory import gain


def test_kappa_of_u_is_that_of_the_matrix() -> None:
    mean = torch.tensor([1.0, -3.0, 0.5], dtype=torch.float64)
    u = torch.eye(4, dtype=torch.float64)
    u[0, 1:] = -mean
    assert gain.kappa_of_u(mean) == pytest.approx(torch.linalg.cond(u).item())
