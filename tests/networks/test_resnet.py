"""Residual networks for CIFAR."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.networks import CIFAR, network_of, normalization, parameters

DEPTH_110 = {"kind": "resnet", "depth": 110}


@pytest.mark.parametrize(
    ("network", "method", "classes", "published"),
    [
        (DEPTH_110, "bn", 10, 1_727_962),
        (DEPTH_110, "bn", 100, 1_733_812),
        ({**DEPTH_110, "preactivation": True}, "bn", 100, 1_733_812),
        (DEPTH_110, "bnp+gn", 10, 1_727_962 + 4_048),
        (DEPTH_110, "gn", 10, 1_727_962),
    ],
)
def test_number_of_parameters(network: Any, method: str, classes: int, published: int) -> None:
    assert parameters(network_of(network, method, CIFAR, classes)) == published


@pytest.mark.parametrize("depth", [8, 14, 20])
def test_number_of_parameters_by_hand(depth: int) -> None:
    """Convolutions without bias, a scale and a shift a channel behind each, no parameters in a shortcut."""
    n = (depth - 2) // 6
    weights = 9 * (3 * 16 + 2 * n * 16 * 16 + 16 * 32 + (2 * n - 1) * 32 * 32 + 32 * 64 + (2 * n - 1) * 64 * 64)
    norms = 2 * (16 + 2 * n * (16 + 32 + 64))
    assert parameters(network_of({"kind": "resnet", "depth": depth}, "bn")) == weights + norms + 65 * 10


@pytest.mark.parametrize("depth", [7, 9, 2, 52])
def test_depths_that_no_such_network_has_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=r"6n\+2|greater than or equal to 8"):
        made("network", {"kind": "resnet", "depth": depth})


@pytest.mark.parametrize(
    "network", [{"kind": "resnet", "depth": 8}, {"kind": "resnet", "depth": 8, "preactivation": True}]
)
@pytest.mark.parametrize("method", ["vanilla", "bn", "gn", "bnp", "bnp+gn"])
def test_convolutions_have_a_bias_where_the_method_needs_one(method: str, network: Any) -> None:
    modules = network_of(network, method).modules()
    biased = {module.bias is not None for module in modules if isinstance(module, nn.Conv2d)}
    assert biased == {method in ("vanilla", "bnp", "bnp+gn")}


def naive_resnet(model: nn.Module, x: Tensor, preactivation: bool) -> Tensor:
    """He et al.'s networks from the weights, block by block, with batch statistics."""
    parameters = dict(model.named_parameters())

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
        scale, shift = (parameters[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        return (x - mean) / (variance + 1e-3).sqrt() * scale + shift

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        return F.conv2d(x, parameters[f"{name}.weight"], stride=stride, padding=1)

    x = F.relu(norm(conv(x, "conv1"), "norm1"))
    for stage in (1, 2, 3):
        for index in range(len(getattr(model, f"stage{stage}"))):
            name, stride = f"stage{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            shortcut = x
            if stride == 2:
                half = x[:, :, ::2, ::2]
                extra = torch.zeros_like(half)[:, : half.shape[1] // 2]
                shortcut = torch.cat([extra, half, extra], dim=1)
            if preactivation:
                first = stage == 1 and index == 0
                y = x if first else F.relu(norm(x, f"{name}.norm1"))
                y = conv(F.relu(norm(conv(y, f"{name}.conv1", stride), f"{name}.norm2")), f"{name}.conv2")
                x = y + shortcut
            else:
                y = F.relu(norm(conv(x, f"{name}.conv1", stride), f"{name}.norm1"))
                x = F.relu(norm(conv(y, f"{name}.conv2"), f"{name}.norm2") + shortcut)
    if preactivation:
        x = F.relu(norm(x, "last_norm"))
    return x.mean((2, 3)) @ parameters["output.weight"].T + parameters["output.bias"]


@pytest.mark.parametrize("preactivation", [False, True])
def test_it_computes_what_the_papers_write(preactivation: bool) -> None:
    torch.manual_seed(0)
    network = made("network", {"kind": "resnet", "depth": 14, "preactivation": preactivation})
    model = network.built(normalization("bn"), (3, 12, 12), 5).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(model(x), naive_resnet(model, x, preactivation))


def test_without_normalization_no_activation_overwrites_a_shortcut() -> None:
    torch.manual_seed(0)
    options = made("network", {"kind": "resnet", "depth": 8, "preactivation": True})
    model = options.built(Normalization(), (3, 16, 16), 3).double()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    want = model(x)
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    torch.testing.assert_close(model(x), want)
