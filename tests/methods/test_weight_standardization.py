"""Standardized weights, with group normalization and without any."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from bnpbench.errors import NotApplicable
from tests.support.kinds import made
from tests.support.others import NEEDS_TIMM
from tests.support.training import trainer

IMAGES = {"kind": "synthetic", "shape": (3, 18, 18), "train": 24, "test": 8, "classes": 3}


def test_kernels_are_standardized_and_dense_layers_are_not() -> None:
    layers = [("a", nn.Conv2d(3, 4, 3)), ("b", nn.Conv2d(4, 2, 3)), ("f", nn.Flatten()), ("c", nn.Linear(8, 2))]
    model = nn.Sequential(OrderedDict(layers)).double()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    made("method", {"kind": "ws+gn", "weight_eps": 1e-3}).finish(model, (3, 6, 6))
    for name in "ab":
        weight = before[f"{name}.weight"]
        mean, variance = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), correction=0, keepdim=True)
        torch.testing.assert_close(getattr(model, name).weight, (weight - mean) / (variance + 1e-3).sqrt())
    torch.testing.assert_close(model.c.weight.detach(), before["c.weight"])


@pytest.mark.parametrize("kind", ["ws+gn", "scaled-ws"])
def test_without_a_convolution_it_would_be_another_method_under_its_name(kind: str) -> None:
    with pytest.raises(NotApplicable, match="the network has none"):
        made("method", kind).finish(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), (3,))


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


# --- scaled, without a normalization -----------------------------------------------------------


def convolutions() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(6, 2, 1))


def test_scaled_kernels_have_the_mean_and_the_variance_of_the_formula() -> None:
    torch.manual_seed(0)
    model = convolutions().double()
    before = [model[place].weight.detach().clone() for place in (0, 2, 3)]
    made("method", {"kind": "scaled-ws", "gamma": 1.5, "weight_eps": 1e-3}).finish(model, (3, 8, 8))
    for place, weight in zip((0, 2), before[:2], strict=True):
        gain = model[place].parametrizations.weight[0].gain
        assert torch.equal(gain, torch.ones_like(gain))
        nn.init.normal_(gain)
        for row, kernel in enumerate(weight):
            n = kernel.numel()
            mean = sum(kernel.flatten().tolist()) / n
            variance = sum((value - mean) ** 2 for value in kernel.flatten().tolist()) / n
            expected = gain[row].item() * 1.5 * (kernel - mean) / (n**0.5 * (variance + 1e-3) ** 0.5)
            torch.testing.assert_close(model[place].weight[row], expected)
    assert torch.equal(model[3].weight, before[2])  # the last layer
    assert [name for name, _ in model.named_parameters() if name.endswith("bias")] == ["2.bias", "3.bias"]


def test_gamma_is_that_of_relu() -> None:
    """1 over the standard deviation of what ReLU makes of a standard normal, found by quadrature."""
    x = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    weight = torch.exp(-x.square() / 2) / (2 * torch.pi) ** 0.5
    first, second = (torch.trapezoid(x.relu() ** power * weight, x) for power in (1, 2))
    assert made("method", "scaled-ws").gamma == pytest.approx((second - first.square()).rsqrt().item(), rel=1e-8)


@NEEDS_TIMM
def test_a_scaled_kernel_is_timms() -> None:
    from timm.layers import ScaledStdConv2d

    torch.manual_seed(0)
    method = made("method", "scaled-ws")
    theirs = ScaledStdConv2d(3, 4, 3, padding=0, bias=False, gamma=method.gamma, eps=method.weight_eps)
    model = convolutions()
    method.finish(model, (3, 8, 8))
    with torch.no_grad():
        theirs.gain.normal_()
        model[0].parametrizations.weight[0].gain.copy_(theirs.gain)
        model[0].parametrizations.weight.original.copy_(theirs.weight)
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(model[0](x), theirs(x))


def test_a_network_of_others_is_left_without_its_normalizations() -> None:
    one = trainer(
        dataset={**IMAGES, "shape": (3, 32, 32)}, batch_size=8, method="scaled-ws", clip_adaptive=0.01,
        network={"kind": "torchvision", "name": "resnet18", "stem": "cifar"},
    )  # fmt: skip
    assert not any(isinstance(module, nn.BatchNorm2d) for module in one.model.modules())
    assert sum("parametrizations" in name and name.endswith("gain") for name, _ in one.model.named_parameters()) == 20
    assert one.epoch()["train_loss"] > 0
