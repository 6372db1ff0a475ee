"""Linear convergence to the nearest minimizer."""

from __future__ import annotations

import pytest
import torch

from bnpbench.theory import convergence


def test_the_nearest_minimizer_is_the_nearest() -> None:
    generator = torch.Generator().manual_seed(0)
    minimum = convergence._regression(generator, 40)  # its network, of which the loss is known
    away = minimum.theta + 1e-2 * torch.randn(len(minimum.theta), generator=generator, dtype=torch.float64)
    units, given = minimum.units(minimum.theta), minimum.units(away)
    grid = torch.linspace(0.9, 1.1, 20001, dtype=torch.float64)
    square = (away[-1] - minimum.theta[-1]).square()
    for own, unit in zip(units, given, strict=True):
        u, v = own[:4], own[4:]
        square = (
            square
            + ((unit[:4] - grid[:, None] * u) ** 2).sum(1).add(((unit[4:] - v / grid[:, None]) ** 2).sum(1)).min()
        )
    assert minimum.distance(away) == pytest.approx(square.sqrt().item(), rel=1e-6)
    assert minimum.loss(minimum.nearest(away)) == pytest.approx(
        minimum.loss(minimum.theta + (minimum.nearest(away) - minimum.theta))
    )
