"""A model that was cast or moved after BNP was made for it: the running values follow in the first step, whose rows a
compiled model had already added to sums that were then replaced by zeros. In the lean form they were folded in twice,
once in the backward pass and once more when the running values had followed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.lean import Linear


def rows(step: int) -> Tensor:
    return 1 + torch.randn(6, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def trained(model: nn.Module, bnp: BNP, steps: int, compiled: bool = False) -> dict[str, Tensor]:
    torch._dynamo.reset()
    forward = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    for step in range(steps):
        model.zero_grad()
        forward(rows(step)).square().mean().backward()
        bnp.precondition()
    torch._dynamo.reset()
    return bnp.state_dict() | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def layer(kind: type[nn.Linear]) -> nn.Linear:
    torch.manual_seed(0)
    return kind(3, 2)


def expected(steps: int) -> dict[str, Tensor]:
    model = layer(nn.Linear).double()
    return trained(model, BNP(model, rho=0.5), steps)


def check(found: dict[str, Tensor], steps: int) -> None:
    for name, value in expected(steps).items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-14)


def test_a_compiled_model_keeps_the_rows_of_its_first_step() -> None:
    for steps in (1, 3):
        model = layer(nn.Linear)
        bnp = BNP(model, rho=0.5)
        check(trained(model.double(), bnp, steps, compiled=True), steps)


def test_the_lean_form_takes_the_rows_of_its_first_step_once() -> None:
    for steps in (1, 3):
        model = layer(Linear)
        bnp = BNP(model, rho=0.5, count="forward", lean=lambda name, module: True)
        check(trained(model.double(), bnp, steps), steps)
