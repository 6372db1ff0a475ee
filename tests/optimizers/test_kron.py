"""Kron, where its factors are the identity, and where they are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.kinds import made
from tests.support.others import NEEDS_OPTIMIZERS

pytestmark = NEEDS_OPTIMIZERS


def moved(options: dict[str, object], size: float) -> torch.Tensor:
    layer = nn.Linear(4, 3, bias=False)
    start = layer.weight.detach().clone()
    optimizer = made("optimizer", {"kind": "kron", "lr": 0.1, **options}).build(
        layer, torch.tensor(0.1), weight_decay=0.0
    )
    layer.weight.grad = torch.full((3, 4), size)
    optimizer.step()
    return (start - layer.weight.detach()) / 0.1


@pytest.mark.parametrize(("size", "step"), [(0.5, 0.5), (4.0, 1.1)])
def test_before_its_factors_move_it_is_clipped_gradient_descent(size: float, step: float) -> None:
    """The update's root mean square is at most 1.1."""
    torch.testing.assert_close(moved({"probability": 0.001}, size), torch.full((3, 4), step), rtol=1e-5, atol=1e-5)


def test_factors_of_wide_layers_are_not_multiplied_out() -> None:
    """Two of 300 rows and columns would be 8 billion numbers."""
    layer = nn.Linear(300, 300, bias=False)
    optimizer = made("optimizer", "kron").build(layer, torch.tensor(0.1), weight_decay=0.0)
    layer.weight.grad = torch.randn(300, 300)
    optimizer.step()
    assert layer.weight.isfinite().all()


def test_its_factors_move_with_the_first_step() -> None:
    torch.manual_seed(0)
    assert not torch.allclose(moved({}, 0.5), torch.full((3, 4), 0.5), rtol=1e-3)
