"""Group normalization with standardized weights."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from bnpbench.errors import NotApplicable
from tests.support.kinds import made
from tests.support.training import trainer

IMAGES = {"kind": "synthetic", "shape": (3, 18, 18), "train": 24, "test": 8, "classes": 3}


def test_kernels_are_standardized_and_dense_layers_are_not() -> None:
    layers = [("a", nn.Conv2d(3, 4, 3)), ("b", nn.Conv2d(4, 2, 3)), ("f", nn.Flatten()), ("c", nn.Linear(8, 2))]
    model = nn.Sequential(OrderedDict(layers)).double()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    made("method", {"kind": "ws+gn", "weight_eps": 1e-3}).reshape_weights(model)
    for name in "ab":
        weight = before[f"{name}.weight"]
        mean, variance = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), correction=0, keepdim=True)
        torch.testing.assert_close(getattr(model, name).weight, (weight - mean) / (variance + 1e-3).sqrt())
    torch.testing.assert_close(model.c.weight.detach(), before["c.weight"])


def test_without_a_convolution_it_would_be_group_normalization_under_another_name() -> None:
    with pytest.raises(NotApplicable, match="the network has none"):
        made("method", "ws+gn").reshape_weights(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))


def test_training_does_not_depend_on_the_scale_of_a_kernel() -> None:
    """With an epsilon of next to nothing, weights times 3 and plus 1 give the same network."""
    ours, other = (
        trainer(
            dataset=IMAGES, batch_size=8, method={"kind": "ws+gn", "weight_eps": 1e-12},
            network={"kind": "cnn", "channels": (4, 8, 4), "dense": 8},
        )
        for _ in range(2)
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in other.model.named_parameters():
            if name.endswith("original"):
                parameter.mul_(3).add_(1)
    images = torch.cat([images for images, _ in ours.examples.test()])
    torch.testing.assert_close(ours.model(images), other.model(images), rtol=1e-4, atol=1e-4)
    assert ours.epoch()["train_loss"] > 0
