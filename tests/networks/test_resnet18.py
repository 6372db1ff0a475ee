"""torchvision's ResNet-18."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.networks import network_of, normalization, parameters

IMAGENET = (3, 224, 224)


@pytest.mark.parametrize(("method", "more"), [("bn", 0), ("bnp+gn", 4_800)])  # a bias a channel of 20 convolutions
def test_number_of_parameters(method: str, more: int) -> None:
    assert parameters(network_of("resnet18", method, IMAGENET, 1000)) == 11_689_512 + more


@pytest.mark.parametrize("method", ["vanilla", "bn", "gn", "bnp", "bnp+gn"])
def test_convolutions_have_a_bias_where_the_method_needs_one(method: str) -> None:
    modules = network_of("resnet18", method).modules()
    biased = {module.bias is not None for module in modules if isinstance(module, nn.Conv2d)}
    assert biased == {method in ("vanilla", "bnp", "bnp+gn")}


@torch.no_grad()
def test_with_batch_normalization_it_is_torchvisions() -> None:
    torch.manual_seed(0)
    ours = made("network", "resnet18").built(normalization({"kind": "bn", "eps": 1e-5}), (3, 40, 40), 7)
    theirs = resnet18(num_classes=7)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(ours(x), theirs(x))


@torch.no_grad()
def test_grey_images_are_read_by_a_first_convolution_of_one_channel() -> None:
    model = made("network", "resnet18").built(Normalization(), (1, 32, 32), 3)
    assert model.conv1.weight.shape == (64, 1, 7, 7)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 3)


def test_without_normalization_no_activation_overwrites_a_shortcut() -> None:
    torch.manual_seed(0)
    model = made("network", "resnet18").built(Normalization(), (3, 16, 16), 3).double()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    want = model(x)
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    torch.testing.assert_close(model(x), want)
