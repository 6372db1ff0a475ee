"""Batch normalization preconditioning as a method: what it costs by Proposition 6."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bnpbench.methods.base import Published
from tests.support.kinds import made
from tests.support.networks import network_of


@pytest.mark.parametrize("batch_size", [1, 16, 60])
def test_dense_layers_cost_what_proposition_6_says(batch_size: int) -> None:
    model = network_of({"kind": "fc", "hidden": (100, 40)}, "bnp", (3072,))
    found = made("method", "bnp").published(model, torch.empty(batch_size, 3072, device="meta"))
    sizes = [(3072, 100), (100, 40), (40, 10)]
    by_hand = sum(4 * n * batch_size + 6 * n * m + 2 * m + 8 * n for n, m in sizes)
    assert found == Published(by_hand, by_hand)


def test_convolutions_cost_by_their_input_positions() -> None:
    model = network_of("cnn", "bnp", (3, 18, 18))
    found = made("method", "bnp").published(model, torch.empty(5, 3, 18, 18, device="meta"))
    convolutions = [(3, 32, 18 * 18), (32, 64, 8 * 8), (64, 32, 3 * 3)]
    dense = [(32, 64), (64, 10)]
    by_hand = sum(4 * c * 5 * at + 6 * c * 9 * out + 2 * out + 8 * c for c, out, at in convolutions)
    assert found.predicted == by_hand + sum(4 * n * 5 + 6 * n * m + 2 * m + 8 * n for n, m in dense)


def test_a_layer_that_is_left_out_costs_nothing() -> None:
    model = network_of({"kind": "fc", "hidden": (100,)}, "bnp", (3072,))
    batch = torch.empty(16, 3072, device="meta")
    whole = made("method", "bnp").published(model, batch).predicted
    rest = made("method", {"kind": "bnp", "first_layer": False}).published(model, batch).predicted
    assert whole - rest == 4 * 3072 * 16 + 6 * 3072 * 100 + 2 * 100 + 8 * 3072


@pytest.mark.parametrize("off", ["scale", "center", "standardize"])
def test_an_ablation_has_no_formula(off: str) -> None:
    model = network_of({"kind": "fc", "hidden": (5,)}, "bnp", (7,))
    options: dict[str, Any] = {"kind": "bnp", off: False}
    assert made("method", options).published(model, torch.empty(4, 7, device="meta")) == Published(None, None)


def test_asking_leaves_no_trace_on_the_model() -> None:
    model = network_of({"kind": "fc", "hidden": (5,)}, "bnp", (7,))
    made("method", "bnp").published(model, torch.empty(4, 7, device="meta"))
    modules = list(model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
