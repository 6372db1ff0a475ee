"""Activations of a network in training."""

from __future__ import annotations

import torch

from bnpbench.theory.activations import load
from bnpbench.theory.outcome import STATEMENTS, Setup


def test_statements_hold_on_a_network_in_training() -> None:
    torch.set_num_threads(1)
    data = load("digits", None, 0)
    assert list(data.networks) == [0, 100, 400]
    assert data.hidden(400, 1, 50).shape == (50, 100)
    plain, real = Setup(trials=5), Setup(trials=5, data=data)
    names = ("proposition-2", "theorem-3", "theorem-4", "proposition-7", "proposition-10", "proposition-11", "figure-8")
    for name in names:
        without, found = STATEMENTS[name](plain), STATEMENTS[name](real)
        assert found.verdict == "holds"
        assert found.tried != without.tried
