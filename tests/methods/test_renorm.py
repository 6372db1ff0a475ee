"""Batch renormalization."""

from __future__ import annotations

import pytest
import torch

from bnpbench.layers import BatchRenorm
from bnpbench.sites import Site
from tests.support.kinds import made
from tests.support.networks import CIFAR, normalization


def test_its_layer_has_the_options_values() -> None:
    layer = made("method", {"kind": "renorm", "eps": 0.1, "momentum": 0.3, "clipped": False}).layer(7, 2, "x")
    assert type(layer) is BatchRenorm
    assert (layer.eps, layer.momentum, layer.clipped) == (0.1, 0.3, False)


@pytest.mark.parametrize("network", [{"kind": "fc", "hidden": (16, 12)}, "cnn"], ids=["fc", "cnn"])
@pytest.mark.parametrize("clipped", [True, False])
def test_it_trains_at_batch_size_one(network: object, clipped: bool) -> None:
    """Its running values are its own, so that one example is not normalized by itself."""
    method = {"kind": "renorm", "clipped": clipped}
    assert made("method", method).smallest_set(Site("hidden1", 100), examples=1) is None
    model = made("network", network).built(normalization(method), CIFAR, 10).train()
    for _ in range(3):
        loss = model(torch.rand(1, *made("network", network).reads(CIFAR))).square().sum()
        loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
