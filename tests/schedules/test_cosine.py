"""A rate on half a cosine."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.support.kinds import made


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_it_is_torchs_by_the_step(final: float) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.5 * final)
    cosine = made("schedule", {"kind": "cosine", "final": final})
    for step in range(40):
        rate = cosine.rate(0.5, 1 + step // 10, step % 10, 10, 4)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        torchs.step()


def test_it_falls_from_the_end_of_the_warm_up() -> None:
    cosine = made("schedule", {"kind": "cosine", "warmup": {"kind": "linear", "start": 0.1, "epochs": 1}})
    rates = [cosine.rate(0.5, 1 + step // 10, step % 10, 10, 4) for step in range(60)]
    assert rates[:11] == pytest.approx([0.1 + 0.04 * step for step in range(10)] + [0.5])
    assert rates[25] == pytest.approx(0.25)
    assert rates[39] == pytest.approx(0.25 * (1 + math.cos(math.pi * 29 / 30)))
    assert set(rates[40:]) == {0.0}  # epochs that are only timed


@pytest.mark.regression
def test_a_training_cut_short_falls_as_the_whole_one() -> None:
    whole = made("schedule", "cosine")
    short = whole.over(100)
    assert short.rate(0.1, 10, 0, 5, 10) == whole.rate(0.1, 10, 0, 5, 100)
    assert short != whole  # so that it has a key of its own
    assert made("schedule", {"kind": "cosine", "epochs": 7}).over(100).epochs == 7


@pytest.mark.regression
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_warm_up_may_outlast_the_training(epochs: int) -> None:
    cosine = made("schedule", {"kind": "cosine", "warmup": {"kind": "linear", "start": 0.1, "epochs": 3}})
    rates = [cosine.rate(0.5, 1 + step // 10, step % 10, 10, epochs) for step in range(60)]
    assert rates[:30] == pytest.approx([0.1 + 0.4 * step / 30 for step in range(30)])
    assert all(0 <= rate <= 0.5 for rate in rates)
