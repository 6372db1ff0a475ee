"""Adam, against its recurrence."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn

from tests.support.kinds import made

GRADIENTS = [0.5, -1.0, 2.0, 0.25]


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.8)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_it_takes_the_papers_steps(betas: tuple[float, float], decay: float) -> None:
    """Algorithm 1 of Kingma and Ba 2015, the decay added to the gradient."""
    weight = nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    options = made("optimizer", {"kind": "adam", "lr": 0.1, "betas": betas, "eps": 1e-3})
    optimizer = options.build(
        nn.ParameterList([weight]), torch.tensor(0.1, dtype=torch.float64), weight_decay=decay, fused=True
    )
    w, m, v = 1.5, 0.0, 0.0
    for t, gradient in enumerate(GRADIENTS, start=1):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        g = gradient + decay * w
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        w -= 0.1 * (m / (1 - betas[0] ** t)) / (sqrt(v / (1 - betas[1] ** t)) + 1e-3)
        assert weight.item() == pytest.approx(w, rel=1e-7)


def test_the_defaults_are_the_papers() -> None:
    adam = made("optimizer", "adam")
    assert (adam.lr, adam.betas, adam.eps) == (1e-3, (0.9, 0.999), 1e-8)


@pytest.mark.parametrize("betas", [(1.0, 0.999), (0.9, -0.1)])
def test_averages_forget(betas: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="betas"):
        made("optimizer", {"kind": "adam", "betas": betas})


@pytest.mark.parametrize(
    ("rate", "fused", "capturable"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_step_counts_are_tensors_on_the_device_where_a_step_is_compiled(
    rate: bool, fused: bool, capturable: bool
) -> None:
    """With a tensor as rate and kernels for each, as a compiled step has them."""
    weight = nn.Parameter(torch.tensor([1.5]))
    lr = torch.tensor(0.1) if rate else None
    optimizer = made("optimizer", "adam").build(nn.ParameterList([weight]), lr, weight_decay=0.0, fused=fused)
    assert optimizer.param_groups[0]["capturable"] is capturable
