"""The rows of a layer as means and variances."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.bnp import BNP


def test_calls_of_any_size_are_pooled_as_one() -> None:
    layer = nn.Linear(3, 2).double()
    bnp = BNP(layer, rho=0.0, fused=False)
    rows = 5 + torch.randn(8, 3, dtype=torch.float64)
    for part in rows.split([1, 5, 2]):
        layer(part).sum().backward()
    bnp.precondition()
    state = bnp.state_dict()
    torch.testing.assert_close(state["running_mean"], rows.mean(0))
    torch.testing.assert_close(state["running_var"], rows.var(0, correction=0))
