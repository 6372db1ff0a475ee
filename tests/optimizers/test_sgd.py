"""Stochastic gradient descent, against its recurrence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.kinds import made

GRADIENTS = [0.5, -1.0, 2.0, 0.25]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_it_takes_the_textbooks_steps(momentum: float, nesterov: bool, decay: float) -> None:
    weight = nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    options = made("optimizer", {"kind": "sgd", "lr": 0.1, "momentum": momentum, "nesterov": nesterov})
    optimizer = options.build(nn.ParameterList([weight]), torch.tensor(0.1, dtype=torch.float64), weight_decay=decay)
    w, velocity = 1.5, 0.0
    for gradient in GRADIENTS:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        g = gradient + decay * w
        velocity = momentum * velocity + g
        w -= 0.1 * (g + momentum * velocity if nesterov else velocity)
        assert weight.item() == pytest.approx(w, rel=1e-12)


def test_nesterov_needs_a_momentum() -> None:
    with pytest.raises(ValueError, match="nesterov needs a momentum above 0"):
        made("optimizer", {"kind": "sgd", "lr": 0.1, "nesterov": True})


@pytest.mark.parametrize("momentum", [1.0, -0.1])
def test_a_momentum_is_below_1(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum"):
        made("optimizer", {"kind": "sgd", "lr": 0.1, "momentum": momentum})


def test_a_rate_must_be_given() -> None:
    with pytest.raises(ValueError, match="lr"):
        made("optimizer", "sgd")
