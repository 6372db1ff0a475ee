"""Muon beside AdamW: torch's own step on matrices, kernels as matrices, one state for both."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from bnpbench.updates.muon import MuonBesideAdamW, hidden_matrices
from tests.support.kinds import made

SHAPES = [(6, 4), (4, 6), (5, 2, 3, 3), (9, 1, 2, 2)]


def gradients(parameters: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("scale", ["original", "match_rms_adamw", "spectral_unclamped"])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_it_takes_torchs_steps_and_a_kernels_as_those_of_a_matrix(scale: str, nesterov: bool, as_tensor: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    theirs = [nn.Parameter(p.detach().flatten(1).clone()) for p in ours]
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9, "nesterov": nesterov, "ns_steps": 4}
    known = torch.optim.Muon(theirs, adjust_lr_fn=scale, **options)
    like = torch.optim.Muon([nn.Parameter(torch.zeros(1, 1))], adjust_lr_fn=scale, **options)
    optimizer = MuonBesideAdamW(ours, None, like)
    if as_tensor:
        optimizer.param_groups[0]["lr"] = torch.tensor(0.05)
    for step in range(3):
        gradients(ours, step)
        for one, other in zip(ours, theirs, strict=True):
            assert one.grad is not None
            other.grad = one.grad.flatten(1).clone()
        optimizer.step()
        known.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.detach().flatten(1), other.detach(), rtol=1e-6, atol=1e-7)


def test_both_have_one_state_that_is_saved_and_loaded_as_one() -> None:
    def both() -> tuple[list[nn.Parameter], MuonBesideAdamW]:
        parameters = [nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(3))]
        rest = torch.optim.AdamW(parameters[1:], lr=0.1)
        return parameters, MuonBesideAdamW(parameters[:1], rest, torch.optim.Muon([nn.Parameter(torch.zeros(1, 1))]))

    (one, first), (other, second) = both(), both()
    gradients(one, 0)
    first.step()
    assert set(map(len, first.state_dict()["state"].values())) == {1, 3}
    second.load_state_dict(deepcopy(first.state_dict()))
    for mine, its in zip(other, one, strict=True):
        mine.data.copy_(its)
    for parameters, optimizer in ((one, first), (other, second)):
        gradients(parameters, 1)
        optimizer.step()
    for mine, its in zip(other, one, strict=True):
        assert torch.equal(mine, its)
    assert second.rest is not None
    assert second.rest.param_groups[0] is second.param_groups[1]


class Text(nn.Module):
    """Of tokens, with everything that is no matrix of a hidden layer."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.positions = nn.Parameter(torch.zeros(1, 5, 4))
        self.mix = nn.MultiheadAttention(4, 2)
        self.conv = nn.Conv1d(4, 4, 3)
        self.norm = nn.LayerNorm((5, 4))
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7)
        if tied:
            self.head.weight = self.words.weight


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_norms_biases_and_the_head_are_left(tied: bool) -> None:
    model = Text(tied)
    names = {id(p): name for name, p in model.named_parameters()}
    hidden = ["mix.in_proj_weight", "mix.out_proj.weight", "conv.weight", "hidden.weight"]
    assert [names[id(p)] for p in hidden_matrices(model, head=False)] == hidden
    assert [names[id(p)] for p in hidden_matrices(model, head=True)] == hidden + ([] if tied else ["head.weight"])


@pytest.mark.parametrize("method", ["ws+gn", "scaled-ws"])
def test_of_a_kernel_that_is_computed_the_original_is_served_and_no_gain(method: str) -> None:
    """Of convolutions alone, whose kernels are all computed but the last layer's."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    made("method", method).finish(model, (3, 8, 8))
    names = {id(p): name for name, p in model.named_parameters()}
    hidden = [f"{place}.parametrizations.weight.original" for place in (0, 2)]
    assert [names[id(p)] for p in hidden_matrices(model, head=False)] == hidden
    assert [names[id(p)] for p in hidden_matrices(model, head=True)] == [*hidden, "4.weight"]
    optimizer = made("optimizer", "muon").build(model, weight_decay=0.0)
    before = [p.detach().clone() for p in hidden_matrices(model, head=False)]
    model(torch.randn(2, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    assert not any(map(torch.equal, before, hidden_matrices(model, head=False)))


def test_a_head_or_a_tied_weight_that_is_computed_is_left() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    register_parametrization(model[1], "weight", nn.Softplus())
    assert [p.shape for p in hidden_matrices(model, head=False)] == [(4, 4)]
    assert [p.shape for p in hidden_matrices(model, head=True)] == [(4, 4), (2, 4)]
    tied = Text(tied=False)
    tied.hidden.weight = tied.words.weight
    for module in (tied.words, tied.hidden):
        register_parametrization(module, "weight", nn.Softplus())
    assert not any(p.shape == (7, 4) for p in hidden_matrices(tied, head=False))
