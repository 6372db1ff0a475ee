"""Adam with decoupled weight decay, against its recurrence."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn

from tests.support.kinds import made

GRADIENTS = [0.5, -1.0, 2.0, 0.25]


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_it_takes_the_papers_steps(decay: float) -> None:
    """Algorithm 2 of Loshchilov and Hutter 2019, the decay times the learning rate as in torch."""
    weight = nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    options = made("optimizer", {"kind": "adamw", "lr": 0.1, "betas": (0.5, 0.8), "eps": 1e-3})
    optimizer = options.build(
        nn.ParameterList([weight]), torch.tensor(0.1, dtype=torch.float64), weight_decay=decay, fused=True
    )
    w, m, v = 1.5, 0.0, 0.0
    for t, gradient in enumerate(GRADIENTS, start=1):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        w *= 1 - 0.1 * decay
        m, v = 0.5 * m + 0.5 * gradient, 0.8 * v + 0.2 * gradient * gradient
        w -= 0.1 * (m / (1 - 0.5**t)) / (sqrt(v / (1 - 0.8**t)) + 1e-3)
        assert weight.item() == pytest.approx(w, rel=1e-7)


def test_the_defaults_are_torchs_but_for_the_decay() -> None:
    adamw = made("optimizer", "adamw")
    assert (adamw.lr, adamw.betas, adamw.eps) == (1e-3, (0.9, 0.999), 1e-8)
