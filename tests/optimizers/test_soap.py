"""SOAP, against Adam in an eigenbasis."""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn

from tests.support.kinds import made
from tests.support.others import NEEDS_OPTIMIZERS

pytestmark = NEEDS_OPTIMIZERS


def grads(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(count)]


def stepped(options: dict[str, object], found: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    layer = nn.Linear(4, 3, bias=False, dtype=torch.float64)
    start = layer.weight.detach().clone()
    optimizer = made("optimizer", {"kind": "soap", "lr": 0.1, **options}).build(
        layer, torch.tensor(0.1, dtype=torch.float64), weight_decay=0.0
    )
    for grad in found:
        layer.weight.grad = grad.clone()
        optimizer.step()
    return start, layer.weight.detach()


def test_between_two_updates_it_is_adam_in_the_eigenbasis_of_the_first_gradient() -> None:
    """Algorithm 3 of Vyas et al. 2024; the first gradient only makes the bases."""
    first, *others = grads(5)
    weight, found = stepped({"every": 100, "betas": (0.9, 0.99), "eps": 1e-12}, [first, *others])
    left, right = (torch.linalg.eigh(m)[1].flip(1) for m in (first @ first.T, first.T @ first))
    mean, square = torch.zeros(3, 4).double(), torch.zeros(3, 4).double()
    for t, grad in enumerate(others, start=1):
        mean = 0.9 * mean + 0.1 * grad
        square = 0.99 * square + 0.01 * (left.T @ grad @ right) ** 2
        turned = (left.T @ mean @ right) / (square.sqrt() + 1e-12)
        weight = weight - 0.1 * sqrt(1 - 0.99**t) / (1 - 0.9**t) * left @ turned @ right.T
    torch.testing.assert_close(found, weight, rtol=1e-6, atol=1e-8)


def test_larger_dimensions_keep_their_basis() -> None:
    """With no factor it is Adam, whose first step moves each weight by the rate."""
    start, found = stepped({"max_dim": 1, "eps": 1e-12}, grads(2))
    torch.testing.assert_close((found - start).abs(), torch.full((3, 4), 0.1).double(), rtol=1e-6, atol=1e-9)
