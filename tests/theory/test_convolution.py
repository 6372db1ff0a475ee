"""Convolutions as matrices, and the means of their columns."""

from __future__ import annotations

import torch

from bnpbench.theory import convolution, verify


def test_the_unfolded_matrix_is_the_papers_example() -> None:
    """Section 4's 4 x 3 map under a 3 x 3 kernel: row and column order, zeros outside."""
    h = torch.tensor([[10 * a + b for b in range(1, 4)] for a in range(1, 5)], dtype=torch.float64)
    matrix = convolution.unfolded(h.view(1, 1, 4, 3), 3)
    assert matrix.shape == (12, 9)
    assert matrix[0].tolist() == [0, 0, 0, 0, 11, 21, 0, 12, 22]
    assert matrix[5].tolist() == [11, 21, 31, 12, 22, 32, 13, 23, 33]
    assert matrix[11].tolist() == [32, 42, 0, 33, 43, 0, 0, 0, 0]


def test_convolutions_are_tried_on_small_images() -> None:
    (outcome,) = verify(["proposition-9"], trials=2, data="digits")
    assert outcome.verdict == "holds"
