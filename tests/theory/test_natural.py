"""K-FAC beside Newton's method."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.theory import natural


def test_newtons_step_ends_at_the_minimum_of_a_linear_regression() -> None:
    torch.manual_seed(0)
    layer, x, y = nn.Linear(3, 2).double(), torch.randn(9, 3).double(), torch.randn(9, 2).double()
    step = natural.newton_step(layer, x, y)
    rows = torch.cat([x, torch.ones(9, 1).double()], 1)
    best = torch.linalg.lstsq(rows, y).solution.T  # (2, 4), the bias last
    found = torch.cat([layer.weight - step[:6].view(2, 3), (layer.bias - step[6:])[:, None]], 1)
    torch.testing.assert_close(found, best)


def test_a_step_leaves_no_hook_on_the_network() -> None:
    layer = nn.Linear(3, 2).double()
    natural.kfac_step(layer, torch.randn(9, 3).double(), torch.randn(9, 2).double())
    assert not layer._forward_hooks
