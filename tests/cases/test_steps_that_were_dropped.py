"""A step that failed or was dropped after its backward pass left its terms behind, and the next one was given them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnpbench import BNP
from bnpbench.bnp import preconditioner
from bnpbench.bnp.lean import Linear
from bnpbench.errors import StatisticsError


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), Linear(4, 2)).double()


def rows(shift: float) -> Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + shift


def gradients(net: nn.Module, bnp: BNP, shift: float) -> list[Tensor]:
    net.zero_grad()
    net(rows(shift)).square().sum().backward()
    bnp.precondition()
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("zeroed_in_place", [False, True])
def test_a_lean_backward_pass_that_was_dropped_is_no_micro_batch(zeroed_in_place: bool) -> None:
    """Its rows are in the running values from its first gradient on, so that the next pass is refused."""
    net = model()
    bnp = BNP(net, count="forward", lean=lambda name, module: True)
    assert bnp.lean == ("0", "4")
    net(rows(50.0)).square().sum().backward()
    net.zero_grad(set_to_none=not zeroed_in_place)
    with pytest.raises(StatisticsError, match="called again before precondition"):
        net(rows(0.0))


def test_after_a_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    bnp = BNP(net, rho=0.0)
    net(rows(0.0)).square().sum().backward()

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(preconditioner, "precondition", full)
        with pytest.raises(torch.OutOfMemoryError):
            bnp.precondition()
    gradients(net, bnp, 50.0)
    torch.testing.assert_close(bnp.state_dict()["0.running_mean"], rows(50.0).mean(0))
