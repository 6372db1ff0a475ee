"""Filter response normalization in networks of ours and of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.errors import NotApplicable
from bnpbench.layers import FilterResponseNorm
from bnpbench.sites import Site
from tests.support.kinds import made
from tests.support.training import trainer

IMAGES = {"kind": "synthetic", "shape": (3, 32, 32), "train": 24, "test": 8, "classes": 3}
CNN = {"kind": "cnn", "channels": (4, 8, 4), "dense": 8}
RESNET = {"kind": "torchvision", "name": "resnet18", "stem": "cifar"}


def layers(network: Any, method: Any = "frn") -> dict[str, FilterResponseNorm]:
    model = trainer(dataset=IMAGES, batch_size=8, network=network, method=method).model
    return {name: module for name, module in model.named_modules() if isinstance(module, FilterResponseNorm)}


def test_it_has_a_threshold_where_a_relu_stood_and_none_before_a_sum() -> None:
    found = layers({"kind": "resnet", "depth": 8})
    assert {name for name, layer in found.items() if layer.tau is None} == {f"stage{n}.0.norm2" for n in (1, 2, 3)}
    found = layers({"kind": "resnet", "depth": 8, "preactivation": True})
    assert all(layer.tau is not None for layer in found.values())
    found = layers(RESNET)
    assert len(found) == 20
    plain = {name for name, layer in found.items() if layer.tau is None}
    assert plain == {name for name in found if name.endswith(("bn2", "downsample.1"))}
    assert all(layer.tau is None for layer in layers(RESNET, {"kind": "frn", "tlu": False}).values())


def test_training_moves_the_thresholds() -> None:
    one = trainer(dataset=IMAGES, batch_size=8, network={"kind": "resnet", "depth": 8}, method="frn")
    assert one.epoch()["train_loss"] > 0
    assert all(p.abs().sum() > 0 for name, p in one.model.named_parameters() if name.endswith("tau"))


def test_rows_and_single_positions_have_no_set_to_normalize() -> None:
    method = made("method", "frn")
    assert method.smallest_set(Site("conv1", 32, positions=9), examples=1) == 9
    with pytest.raises(NotApplicable, match="single value: what follows layer 'dense' sees 1 value"):
        trainer(dataset=IMAGES, batch_size=8, network=CNN, method="frn")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), method.layer(4, 2, "x"))
    from bnpbench.training.models import not_applicable

    assert not_applicable(model, (3, 3, 3), 8) == (
        "normalization over a single value: layer '1' sees 1 value at a time, of which it leaves a constant"
    )
    assert not_applicable(model, (3, 4, 4), 8) is None


def test_under_autocast_its_statistics_are_of_float32() -> None:
    one = trainer(dataset=IMAGES, batch_size=8, network={"kind": "resnet", "depth": 8}, method="frn", precision="bf16")
    seen = list[torch.dtype]()
    layer = one.model.norm1
    layer.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].dtype))
    one.epoch()
    assert set(seen) == {torch.float32}
