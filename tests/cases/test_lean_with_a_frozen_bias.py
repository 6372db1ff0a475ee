"""A layer with a frozen bias is preconditioned as one without: the lean form went on with the formula for a bias."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.bnp import BNP
from bnpbench.bnp.lean import Linear


def test_freezing_a_bias_changes_the_lean_form_as_it_does_the_plain_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Linear(6, 5), nn.Tanh(), Linear(5, 3)).double()
    twin = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    twin.load_state_dict(model.state_dict())
    bnp, plain = BNP(model, count="forward", lean=lambda name, module: True), BNP(twin)
    for step in range(3):
        inputs = 1 + torch.randn(4, 6, dtype=torch.float64)
        for one, preconditioner in ((model, bnp), (twin, plain)):
            one.zero_grad()
            one[0].bias.requires_grad_(step != 1)
            one(inputs).square().mean().backward()
            preconditioner.precondition()
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-14)
        assert (model[0].bias.grad is None) == (step == 1)


def test_the_gradient_that_a_frozen_bias_has_kept_is_left_alone() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).double()
    twin = nn.Linear(4, 3, bias=False).double()
    with torch.no_grad():
        twin.weight.copy_(layer.weight)
    layer.bias.requires_grad_(False)
    layer.bias.grad = torch.ones(3, dtype=torch.float64)
    inputs = 1 + torch.randn(5, 4, dtype=torch.float64)
    for one in (layer, twin):
        bnp = BNP(one)
        one(inputs).sum().backward()
        bnp.precondition()
    torch.testing.assert_close(layer.weight.grad, twin.weight.grad, rtol=1e-12, atol=1e-14)
    assert layer.bias.grad.tolist() == [1.0, 1.0, 1.0]
