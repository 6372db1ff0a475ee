"""A preconditioner on a dense layer and two rows, small enough to be worked by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench import GradientPlugin
from bnpbench.bnp.rewriter import Rewriter

ROWS = torch.tensor([[1.0, 0.0], [3.0, 2.0]], dtype=torch.float64)


def rewritten(method: GradientPlugin, bias: bool = False) -> Tensor:
    """What becomes of the identity as a gradient, in a step on two rows."""
    n = 2 + bias
    layer = nn.Linear(2, n, bias=bias).double()
    rewriter = Rewriter(layer, method)
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
