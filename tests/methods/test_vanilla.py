"""The network as it is."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.methods.base import Published
from bnpbench.methods.preconditioning import Training
from tests.support.kinds import made
from tests.support.networks import network_of, parameters


def test_it_changes_nothing_and_costs_nothing() -> None:
    vanilla, model = made("method", "vanilla"), nn.Linear(3, 2)
    assert vanilla.does_nothing()
    assert vanilla.preconditioner(model, Training(16)) is None
    assert vanilla.decays(model) == []
    assert vanilla.published(model, torch.empty(4, 3)) == Published(0, 0)


def test_it_adds_no_parameter() -> None:
    network = {"kind": "fc", "hidden": (5,)}
    assert parameters(network_of(network, "vanilla", (7,), 3)) == 8 * 5 + 6 * 3
    assert parameters(network_of(network, "bn", (7,), 3)) == 8 * 5 + 6 * 3 + 10
