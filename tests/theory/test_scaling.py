"""The best diagonal scaling, and columns that are hard to scale."""

from __future__ import annotations

import math

import pytest
import torch

from bnpbench.theory import scaling


def test_the_best_scaling_is_found() -> None:
    """D0 = diag(1, 1/s) is the best for orthogonal columns, and D = equal norms for any two."""
    orthogonal = torch.eye(4, 3, dtype=torch.float64) * torch.tensor([1.0, 50.0, 1e-3])
    assert scaling.best_scaling(orthogonal.unsqueeze(0)).item() == pytest.approx(1.0)
    hard = scaling.hard_columns(torch.Generator().manual_seed(1), 8, 6)
    ratio = scaling.kappa(scaling.unit_columns(hard)) / scaling.best_scaling(hard.unsqueeze(0)).item()
    assert math.sqrt(3) * 0.93 < ratio <= math.sqrt(3)
