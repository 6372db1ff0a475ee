"""Adaptive gradient clipping, against the formula unit by unit and against timm's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.training.clipping import SMALLEST_NORM, clip_adaptively, clipping
from tests.support.others import NEEDS_TIMM
from tests.support.training import trainer


def network(seed: int = 0) -> nn.Sequential:
    """With gradients of all sizes, a unit of zeros, and a bias of zeros."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
            parameter.grad = torch.randn_like(parameter) * 10 ** torch.linspace(-4, 1, parameter.numel()).view_as(
                parameter
            )
        model[0].weight[1].zero_()
        model[3].bias.zero_()
    return model.double()


def units(tensor: torch.Tensor) -> list[torch.Tensor]:
    return list(tensor.unbind()) if tensor.ndim > 1 else [tensor]


def test_no_units_gradient_is_above_its_share_and_others_stay() -> None:
    model, ratio = network(), 0.1
    before = [(p.detach().clone(), p.grad.clone()) for p in model.parameters() if p.grad is not None]
    clip_adaptively(model.parameters(), ratio)
    clipped = 0
    for (weight, grad), parameter in zip(before, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter, weight)
        for w, g, now in zip(units(weight), units(grad), units(parameter.grad), strict=True):
            allowed = ratio * max(w.square().sum().item() ** 0.5, SMALLEST_NORM)
            size = g.square().sum().item() ** 0.5
            clipped += size > allowed
            torch.testing.assert_close(now, g * (allowed / size) if size > allowed else g)
    assert 3 < clipped < sum(len(units(weight)) for weight, _ in before)


@NEEDS_TIMM
def test_it_is_timms() -> None:
    from timm.utils.agc import adaptive_clip_grad

    ours, theirs = network(), network()
    clip_adaptively(ours.parameters(), 0.1)
    adaptive_clip_grad(theirs.parameters(), 0.1)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_gain_for_each_channel_is_one_vector() -> None:
    """As in the authors' code, whatever its number of dimensions."""
    gain = nn.Parameter(torch.tensor([3.0, 4.0]).view(2, 1, 1, 1))
    gain.grad = torch.tensor([0.0, 10.0]).view(2, 1, 1, 1)
    clip_adaptively([gain], 0.1)
    torch.testing.assert_close(gain.grad.flatten(), torch.tensor([0.0, 0.5]))


def test_what_is_no_number_stays_none() -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros(2, 3)
    weight.grad[1, 0] = torch.nan
    clip_adaptively([weight], 0.1)
    assert torch.equal(weight.grad[0], torch.zeros(3))
    assert weight.grad[1].isnan().any()


@pytest.mark.parametrize("method", ["vanilla", "bnp"])
def test_the_last_layer_is_left_alone_and_the_norm_of_all_comes_last(method: str) -> None:
    changes: dict[str, Any] = {"clip_adaptive": 1e-3, "clip_norm": 1e-2, "method": method}
    one = trainer(**changes)
    clip = clipping(one.settings, one.model)
    assert clip is not None
    for parameter in one.model.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    clip()
    *others, weight, bias = one.model.parameters()
    assert torch.equal(weight.grad / weight.grad.flatten()[0], torch.ones_like(weight))
    assert torch.equal(weight.grad.flatten()[0], bias.grad[0])
    assert all(p.grad.abs().max() < 1e-3 * bias.grad[0] for p in others if p.grad is not None)
    assert nn.utils.get_total_norm([p.grad for p in one.model.parameters() if p.grad is not None]) <= 1.001e-2
    assert clipping(trainer().settings, one.model) is None


def test_it_comes_after_preconditioning() -> None:
    """A step moves a hidden unit by at most the learning rate times its share."""
    one = trainer(method="bnp", clip_adaptive=1e-4, optimizer={"kind": "sgd", "lr": 1.0})
    before = [p.detach().clone() for p in one.model.parameters()]
    one.step.begin_epoch(one.noise)
    one.step(torch.arange(10))
    moved = 0
    for old, new in list(zip(before, one.model.parameters(), strict=True))[:-2]:
        for w, step in zip(units(old), units(new.detach() - old), strict=True):
            allowed = 1e-4 * max(w.norm().item(), SMALLEST_NORM)
            assert step.norm() <= 1.01 * allowed
            moved += step.norm().item() > 0.9 * allowed
    assert moved
