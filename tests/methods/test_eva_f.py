"""Eva-f on two rows, by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.eva_f import EvaF

ROWS = torch.tensor([[1.0, 0.0], [3.0, 2.0]], dtype=torch.float64)


def rewritten(eva_f: EvaF, bias: bool = False) -> Tensor:
    """What becomes of the identity as a gradient, in a step on two rows."""
    n = 2 + bias
    layer = nn.Linear(2, n, bias=bias).double()
    rewriter = Rewriter(layer, eva_f)
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


def test_the_inverse_of_rank_one() -> None:
    """The mean is (2, 1): the inverse of [[4, 2], [2, 1]] + 5 I = [[9, 2], [2, 6]] is [[6, -2], [-2, 9]] / 50."""
    expected = torch.tensor([[6.0, -2.0], [-2.0, 9.0]], dtype=torch.float64) / 50
    torch.testing.assert_close(rewritten(EvaF.made(damping=5.0)), expected)


def test_the_mean_of_a_bias_is_one() -> None:
    """a = (1, 2, 1): (I - a a^T / 10) / 4 has the first row (0.9, -0.2, -0.1) / 4."""
    first = torch.tensor([0.9, -0.2, -0.1], dtype=torch.float64) / 4
    torch.testing.assert_close(rewritten(EvaF.made(damping=4.0), bias=True)[0], first)
