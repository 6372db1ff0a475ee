"""Layers of rows, over inputs of more dimensions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.layers import FourThings
from bnpbench.layers.rows import Rows


@pytest.mark.parametrize(("dim", "shape"), [(-1, (3, 5, 4)), (1, (3, 4, 5)), (1, (3, 4, 2, 5)), (-1, (3, 4))])
def test_every_position_is_a_row(dim: int, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, norm = Rows(nn.LayerNorm(4).double(), dim)(x), nn.LayerNorm(4).double()
    assert found.shape == x.shape
    for row, expected in zip(found.movedim(dim, -1).reshape(-1, 4), x.movedim(dim, -1).reshape(-1, 4), strict=True):
        torch.testing.assert_close(row, norm(expected))


@pytest.mark.regression
@pytest.mark.parametrize(("dim", "shape"), [(-1, (6, 5, 4)), (1, (6, 4, 5)), (-1, (6, 4))])
def test_parts_of_a_batch_are_of_examples_and_not_of_rows(dim: int, shape: tuple[int, ...]) -> None:
    """Two ghost batches of three examples each, with all their positions."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
    found = Rows(FourThings(4, eps=1e-3, ghost_batch=3).double(), dim)(x)
    for part, y in zip(x.split(3), found.split(3), strict=True):
        rows = part.movedim(dim, -1).reshape(-1, 4)
        expected = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-3).sqrt()
        torch.testing.assert_close(y.movedim(dim, -1).reshape(-1, 4), expected)
