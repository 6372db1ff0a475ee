"""Eva, held to explicit Kronecker products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.bnp.layer import Layer
from tests.support.kinds import made
from tests.support.networks import CIFAR, network_of
from tests.support.two_sides import CASES, check, ranks_check


def options(**more: Any) -> dict[str, Any]:
    return {"kind": "eva", "rho": 0.3, "damping": 0.05, "every": 1, **more}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_kronecker_product_of_rank_one(name: str, every: int) -> None:
    check(name, options(every=every))


@pytest.mark.parametrize(("parts", "count"), [(1, "forward"), (2, "backward"), (2, "forward")])
def test_micro_batches_are_one_batch(parts: int, count: str) -> None:
    for name in ("dense", "convolutions", "tokens"):
        check(name, options(), parts, count)


def test_two_ranks_are_one_device(tmp_path: Path) -> None:
    ranks_check(tmp_path, [(name, options()) for name in ("dense", "convolutions", "tokens")])


def test_the_statistics_of_the_batch_alone() -> None:
    check("convolutions", options(rho=0.0))


@pytest.mark.parametrize(("network", "shape"), [({"kind": "fc", "hidden": (30, 20)}, (3072,)), ("cnn", CIFAR)])
def test_what_it_counts_is_what_the_formula_says(network: Any, shape: tuple[int, ...]) -> None:
    model = network_of(network, "eva", shape)
    found = made("method", "eva").published(model, torch.empty(5, *shape, device="meta"))
    assert found.predicted == found.counted


def test_the_inputs_side_is_what_becomes_of_a_gradient_along_b() -> None:
    method, layer = made("method", options()), Layer("", nn.Linear(3, 2).double())
    torch.manual_seed(0)
    state = {"a": torch.randn(1, 4).double(), "b": torch.randn(1, 2).double()}
    gradient = state["b"].unsqueeze(2) * torch.randn(1, 1, 4).double()
    expected = method.rewrite(layer, state, gradient)
    torch.testing.assert_close(gradient @ method.input_matrix(layer, state), expected)
