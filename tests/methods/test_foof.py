"""FOOF on two rows, by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.foof import Foof

ROWS = torch.tensor([[1.0, 0.0], [3.0, 2.0]], dtype=torch.float64)


def rewritten(foof: Foof, bias: bool = False) -> Tensor:
    """What becomes of the identity as a gradient, in a step on two rows."""
    n = 2 + bias
    layer = nn.Linear(2, n, bias=bias).double()
    rewriter = Rewriter(layer, foof)
    layer(ROWS).sum().backward()
    eye = torch.eye(n, dtype=torch.float64)
    assert layer.weight.grad is not None
    layer.weight.grad.copy_(eye[:, n - 2 :])
    if not bias:
        rewriter.precondition()
        return layer.weight.grad
    assert layer.bias.grad is not None
    layer.bias.grad.copy_(eye[:, 0])
    rewriter.precondition()
    return torch.cat([layer.bias.grad[:, None], layer.weight.grad], 1)


def test_the_inverse_of_the_second_moment() -> None:
    """A = [[5, 3], [3, 2]] of the rows (1, 0) and (3, 2), whose inverse is [[2, -3], [-3, 5]]."""
    expected = torch.tensor([[2.0, -3.0], [-3.0, 5.0]], dtype=torch.float64)
    torch.testing.assert_close(rewritten(Foof.made(damping=0.0)), expected)


def test_a_bias_is_a_column_of_ones() -> None:
    """A = [[1, 2, 1], [2, 5, 3], [1, 3, 2]] has no inverse; with lambda = 1 it is that of A + I."""
    moment = torch.tensor([[1.0, 2, 1], [2, 5, 3], [1, 3, 2]], dtype=torch.float64)
    expected = torch.linalg.inv(moment + torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(rewritten(Foof.made(damping=1.0), bias=True), expected)
