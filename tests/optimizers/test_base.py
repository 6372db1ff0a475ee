"""What every optimizer has: one learning rate, a tensor where a schedule writes into it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.optimizers.base import OptimizerPlugin
from tests.support.kinds import made

OPTIMIZERS = [{"kind": "sgd", "lr": 0.1}, {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.1}]
EVERY = pytest.mark.parametrize("options", OPTIMIZERS, ids=str)


def built(options: Any, lr: torch.Tensor | None = None, **others: Any) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    return weight, made("optimizer", options).build(nn.ParameterList([weight]), lr, **{"weight_decay": 0.0, **others})


@EVERY
def test_the_rate_is_the_tensor_itself_and_follows_it(options: Any) -> None:
    lr = torch.tensor(0.1)
    weight, optimizer = built(options, lr, fused=True)
    assert len(optimizer.param_groups) == 1
    assert optimizer.param_groups[0]["lr"] is lr
    moved = []
    for rate in (0.1, 0.0):
        lr.fill_(rate)
        before = weight.detach().clone()
        weight.grad = torch.tensor([0.5, 0.25])
        optimizer.step()
        moved.append(not torch.equal(weight.detach(), before))
    assert moved == [True, False]


@EVERY
def test_without_a_tensor_it_is_the_options_number(options: Any) -> None:
    _, optimizer = built(options)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]


@EVERY
@pytest.mark.parametrize("fused", [False, True])
def test_one_kernel_or_for_each(options: Any, fused: bool) -> None:
    results = []
    for way in (fused, False):
        weight, optimizer = built(options, fused=way, weight_decay=0.3)
        assert (optimizer.param_groups[0]["fused"], optimizer.param_groups[0]["foreach"]) == (way, not way)
        for _ in range(3):
            weight.grad = torch.tensor([0.5, -0.25])
            optimizer.step()
        results.append(weight.detach())
    torch.testing.assert_close(*results)


def test_a_class_without_make_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"OptimizerPlugin defines no make\(\)"):
        OptimizerPlugin(kind="x", lr=0.1).build(nn.Identity(), weight_decay=0.0)


@pytest.mark.parametrize("lr", [0.0, -0.1, float("inf")])
def test_a_rate_is_a_number_above_0(lr: float) -> None:
    with pytest.raises(ValueError, match="lr"):
        made("optimizer", {"kind": "sgd", "lr": lr})
