"""Batch normalization with four improvements."""

from __future__ import annotations

from math import ceil

import pytest
import torch
from torch import nn

from bnpbench.layers import FourThings as Layer
from bnpbench.methods.preconditioning import Training
from bnpbench.sites import Site
from tests.support.kinds import made
from tests.support.networks import CIFAR, normalization

HIDDEN = {"kind": "fc", "hidden": (16, 12)}


def test_its_layer_has_the_options_values() -> None:
    options = {"eps": 0.1, "momentum": 0.3, "ghost_batch": 8, "example_weight": 0.2, "group": 4}
    layer = made("method", {"kind": "4things", **options}).layer(12, 2, "x")
    assert {name: getattr(layer, name) for name in options} == options
    assert layer.weight.shape == (12,)
    assert made("method", "4things").layer(12, 2, "x").group is None


@pytest.mark.parametrize("batch_size", [1, 2, 128])
def test_fewer_channels_than_a_group_are_one_group(batch_size: int) -> None:
    method = made("method", {"kind": "4things", "group": 4, "input": True})
    assert [method.channels(features) for features in (3, 4, 32)] == [3, 4, 4]
    model = made("network", "cnn").built(normalization(method.model_dump()), CIFAR, 10)
    assert (model.input_norm.group, model.conv1_norm.group) == (3, 4)
    assert model(torch.rand(batch_size, *CIFAR)).isfinite().all()


def test_groups_that_do_not_divide_are_told() -> None:
    fault = made("method", {"kind": "4things", "group": 5}).undivided("conv1", 16)
    assert fault is not None
    assert (fault.option, fault.reason) == (
        "group",
        "4things behind layer 'conv1': 5 channels a group do not divide its 16 channels",
    )
    assert made("method", "4things").undivided("conv1", 17) is None


@pytest.mark.parametrize("examples", [1, 2, 3, 16, 17, 31, 60])
@pytest.mark.parametrize("ghost_batch", [None, 1, 2, 16])
def test_the_smallest_ghost_batch_decides(examples: int, ghost_batch: int | None) -> None:
    method = made("method", {"kind": "4things", "ghost_batch": ghost_batch, "group": 2})
    parts = torch.arange(examples).tensor_split(ceil(examples / (ghost_batch or examples)))
    smallest = min(map(len, parts))
    assert method.smallest_set(Site("conv1", 8, positions=9), examples) == smallest * 2 * 9


def test_statistics_of_the_whole_batch_are_for_one_device() -> None:
    for kind in ("4things", "renorm"):
        fault = made("method", kind).refuses(Training(16, devices=2))
        assert fault is not None
        assert fault.reason == f"{kind} takes its statistics from the whole batch, which no device sees whole"
        assert made("method", kind).refuses(Training(16)) is None


def test_beta_is_pulled_to_zero_and_gamma_to_one() -> None:
    method = made("method", {"kind": "4things", "decay": 0.3})
    model = made("network", HIDDEN).built(normalization("4things"), CIFAR, 10).double()
    sum(decay() for decay in method.decays(model)).backward()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
        parameter.grad = None
    value = sum(decay() for decay in method.decays(model))
    value.backward()
    layers = [model.hidden1_norm, model.hidden2_norm]
    assert all(isinstance(layer, Layer) for layer in layers)
    squares = sum((layer.bias**2).sum().item() + ((layer.weight - 1) ** 2).sum().item() for layer in layers)
    assert value.item() == pytest.approx(0.15 * squares)
    for layer in layers:
        torch.testing.assert_close(layer.bias.grad, 0.3 * layer.bias)
        torch.testing.assert_close(layer.weight.grad, 0.3 * (layer.weight - 1))
    assert model.hidden1.weight.grad is None


def test_without_a_decay_or_a_layer_there_is_no_penalty() -> None:
    model = made("network", HIDDEN).built(normalization("4things"), CIFAR, 10)
    assert made("method", {"kind": "4things", "decay": 0.0}).decays(model) == []
    assert made("method", "4things").decays(nn.Linear(3, 2)) == []
