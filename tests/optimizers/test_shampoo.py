"""Shampoo, against the matrices of its paper."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.support.kinds import made
from tests.support.others import NEEDS_OPTIMIZERS

pytestmark = NEEDS_OPTIMIZERS


def root(matrix: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values**power) @ vectors.T


@pytest.mark.parametrize("every", [1, 3])
def test_it_takes_the_papers_steps(every: int) -> None:
    """Algorithm 1 of Gupta, Koren and Singer 2018: L and R are sums, W moves by L^(-1/4) G R^(-1/4).

    Roots are of the first step, and of those whose number ``every`` divides.
    """
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(4, 3, bias=False, dtype=torch.float64)
    weight = layer.weight.detach().clone()
    optimizer = made("optimizer", {"kind": "shampoo", "every": every, "matrix_eps": 1e-2}).build(
        layer, torch.tensor(0.1), weight_decay=0.0
    )
    left, right = 1e-2 * torch.eye(3, dtype=torch.float64), 1e-2 * torch.eye(4, dtype=torch.float64)
    roots = left, right
    for step in range(1, 8):
        grad = torch.randn(3, 4, generator=generator, dtype=torch.float64)
        layer.weight.grad = grad.clone()
        optimizer.step()
        left, right = left + grad @ grad.T, right + grad.T @ grad
        if step == 1 or step % every == 0:
            roots = root(left, -0.25), root(right, -0.25)
        weight -= 0.1 * roots[0] @ grad @ roots[1]
        torch.testing.assert_close(layer.weight.detach(), weight, rtol=1e-6, atol=1e-8)
