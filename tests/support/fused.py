"""Networks that BNP's fused form serves, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from bnpbench.bnp.fused import Layout
from bnpbench.bnp.joined import Place

Places = tuple[Place, ...]


def network() -> nn.Sequential:
    """Every kind of layer, with a bias and without."""
    torch.manual_seed(0)
    last = nn.Conv2d(6, 4, 2).to(memory_format=torch.channels_last)
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, groups=2), nn.ReLU(), nn.Conv2d(6, 6, 2, groups=3, bias=False), nn.Tanh(),
        nn.Conv2d(6, 6, 2, bias=False), last, nn.Flatten(), nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3),
    ).double()  # fmt: skip


def rows(count: int, seed: int) -> Tensor:
    return 1 + torch.randn(count, 4, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def backward(model: nn.Module, inputs: Tensor) -> None:
    model.zero_grad()
    model(inputs).square().mean().backward()


def by_rows(layout: Layout, places: Places) -> Callable[..., None]:
    """The formulas for a GPU, on the CPU."""
    return replace(layout, device=torch.device("cuda")).step


def compare(one: nn.Module, other: nn.Module, tolerance: float) -> None:
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        if theirs.grad is None:
            continue
        assert ours.grad is not None
        assert ours.grad.stride() == theirs.grad.stride()
        assert (ours.grad - theirs.grad).abs().max() <= tolerance * theirs.grad.abs().max()
