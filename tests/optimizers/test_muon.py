"""Muon as a suite has it: what it serves, AdamW's rate beside its own, the networks that it fits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.errors import NotApplicable
from tests.support.kinds import made
from tests.support.training import trainer


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize(("head", "matrices"), [(False, 108 + 80), (True, 108 + 80 + 10)])
def test_each_parameter_is_served_by_one(head: bool, matrices: int) -> None:
    model = network()
    parts = made("optimizer", {"kind": "muon", "head": head}).parts(model)
    assert list(parts) == ["muon", "adamw"]
    sizes = [sum(p.numel() for p in own) for own in parts.values()]
    assert sizes == [matrices, sum(p.numel() for p in model.parameters()) - matrices]


def test_the_rest_follows_the_schedule_at_its_own_rate() -> None:
    optimizer = {"kind": "muon", "lr": 0.02, "adamw_lr": 0.001}
    ours = trainer(optimizer=optimizer, schedule={"kind": "steps", "epochs": (1,), "factor": 0.1})
    rates = []
    for _ in range(2):
        ours.epoch()
        rates.append([float(group["lr"]) for group in ours.step.optimizer.param_groups])
    assert rates[0] == pytest.approx([0.02, 0.001])
    assert rates[1] == pytest.approx([0.002, 0.0001])


def test_the_rest_takes_adamws_steps() -> None:
    model, alone = network(), network()
    alone.load_state_dict(model.state_dict())
    options = made("optimizer", {"kind": "muon", "adamw_lr": 0.01})
    optimizer = options.build(model, torch.tensor(0.02), weight_decay=0.1, fused=True)
    adamw = made("optimizer", {"kind": "adamw", "lr": 0.01})
    known = adamw.build(alone, torch.tensor(0.01), weight_decay=0.1, fused=True)
    for each, step in ((model, optimizer.step), (alone, known.step)):
        for _ in range(2):
            for parameter in each.parameters():
                parameter.grad = torch.ones_like(parameter)
            step()
    for place in (4, 2, 0):
        assert torch.equal(model[place].bias, alone[place].bias)
    assert torch.equal(model[4].weight, alone[4].weight)
    assert not torch.equal(model[2].weight, alone[2].weight)


def test_a_network_without_hidden_matrices_is_not_its_own() -> None:
    with pytest.raises(NotApplicable, match="muon serves the matrices of hidden layers, and the network has none"):
        made("optimizer", "muon").build(nn.Linear(3, 2), weight_decay=0.0)


@pytest.mark.parametrize("option", [{"adjust_lr_fn": "none"}, {"ns_steps": 0}, {"momentum": 1.0}])
def test_options_are_checked(option: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        made("optimizer", {"kind": "muon", **option})
