"""What the statements on BNP's kin are made of; that they hold, and fail when broken, is in test_mutations.py."""

from __future__ import annotations

import pytest
import torch

from bnpbench.methods.foof import Foof
from bnpbench.theory.preconditioners import damped_kappa, left, multiplier


def test_damping_leaves_some_of_the_condition_number() -> None:
    assert damped_kappa(100.0, 1.0, 0.0) == 1.0
    assert damped_kappa(100.0, 1.0, 1e12) == pytest.approx(100.0)
    assert damped_kappa(9.0, 1.0, 1.0) == pytest.approx(9 * 2 / 10)


def test_the_multiplier_is_the_inverse_of_the_second_moment() -> None:
    rows = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ones = torch.cat([torch.ones(9, 1, dtype=torch.float64), rows], 1)
    found = multiplier(rows, Foof.made(damping=0.3, every=1))
    torch.testing.assert_close(found, torch.linalg.inv(ones.T @ ones / 9 + 0.3 * torch.eye(4, dtype=torch.float64)))
    assert left(rows, Foof.made(damping=0.0, every=1)) == pytest.approx(1.0, abs=1e-8)
