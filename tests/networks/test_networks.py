"""Sizes, shapes and forms of the networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.errors import SuiteError
from bnpbench.sites import Normalization
from tests.support.kinds import made

CIFAR = (3, 32, 32)
DEPTH_110 = {"kind": "resnet", "depth": 110}


def options(network: Any) -> Any:
    return made("network", network)


def network_of(network: Any, method: Any, shape: tuple[int, ...] = CIFAR, classes: int = 10) -> nn.Module:
    with torch.device("meta"):
        return options(network).built(normalization(method), shape, classes)


def normalization(method: Any) -> Normalization:
    m = made("method", method)
    if not m.normalizes():
        return Normalization()
    return Normalization(m.stands, m.layer, conv_bias=m.preconditions(), input=m.normalizes_input)


@pytest.mark.parametrize(
    ("network", "method", "shape", "classes", "parameters"),
    [
        ("cnn", "vanilla", CIFAR, 10, 71_338),
        ("cnn", "bnp", CIFAR, 10, 71_338),
        ("cnn", "bn", CIFAR, 10, 71_338 + 2 * (32 + 64 + 32 + 64)),
        (DEPTH_110, "bn", CIFAR, 10, 1_727_962),
        (DEPTH_110, "bn", CIFAR, 100, 1_733_812),
        ({**DEPTH_110, "preactivation": True}, "bn", CIFAR, 100, 1_733_812),
        (DEPTH_110, "bnp+gn", CIFAR, 10, 1_727_962 + 4_048),
        (DEPTH_110, "gn", CIFAR, 10, 1_727_962),
        ("resnet18", "bn", (3, 224, 224), 1000, 11_689_512),
        ("resnet18", "bnp+gn", (3, 224, 224), 1000, 11_689_512 + 4_800),
        ({"kind": "fc", "hidden": (100, 100, 100)}, "vanilla", CIFAR, 10, 307_300 + 2 * 10_100 + 1_010),
        ({"kind": "fc", "hidden": (100, 100)}, "bn", CIFAR, 10, 307_300 + 10_100 + 1_010 + 400),
        ({"kind": "fc", "hidden": ()}, "bn", (64,), 3, 65 * 3),
        ({"kind": "fc", "hidden": ()}, {"kind": "bn", "input": True}, (64,), 3, 65 * 3 + 2 * 64),
        ("cnn", {"kind": "renorm", "input": True}, CIFAR, 10, 71_338 + 2 * (32 + 64 + 32 + 64) + 2 * 3),
        (DEPTH_110, {"kind": "bn", "input": True}, CIFAR, 10, 1_727_962 + 2 * 3),
    ],
)
def test_number_of_parameters(network: Any, method: Any, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    model = network_of(network, method, shape, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("network", "shape", "norm"),
    [
        ({"kind": "fc", "hidden": (7,)}, (2, 3, 4), nn.BatchNorm1d),
        ("cnn", (3, 20, 20), nn.BatchNorm2d),
        ({"kind": "resnet", "depth": 8}, (3, 8, 8), nn.BatchNorm2d),
    ],
)
def test_the_input_is_normalized_first_and_other_layers_keep_their_names(
    network: Any, shape: tuple[int, ...], norm: type[nn.Module]
) -> None:
    with_input, without = (network_of(network, {"kind": "bn", "input": on}, shape) for on in (True, False))
    name, first = next(iter(with_input.named_children()))
    assert (name, type(first), first.num_features) == ("input_norm", norm, options(network).reads(shape)[0])
    rest = [name.removeprefix("network.") for name, _ in with_input.named_parameters() if "input_norm" not in name]
    assert rest == [name for name, _ in without.named_parameters()]
    called: list[str] = []
    for name, module in with_input.named_modules():
        if isinstance(module, norm | nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    with_input(torch.empty(5, *options(network).reads(shape), device="meta"))
    assert called[0] == "input_norm"


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ({"kind": "fc", "hidden": (7,)}, (2, 3, 5)),
        ({"kind": "fc", "hidden": ()}, (9,)),
        ("cnn", (1, 18, 18)),
        ("cnn", (3, 18, 40)),
        ({"kind": "resnet", "depth": 14}, (1, 8, 8)),
        ({"kind": "resnet", "depth": 8, "preactivation": True}, (3, 33, 31)),
        ("resnet18", (1, 40, 40)),
        ("resnet18", CIFAR),
    ],
)
def test_logits_of_any_input_that_fits(network: Any, shape: tuple[int, ...]) -> None:
    model = network_of(network, "bn", shape, classes=4)
    assert model(torch.empty(5, *options(network).reads(shape), device="meta")).shape == (5, 4)


@pytest.mark.parametrize(
    ("network", "shape", "words"),
    [
        ("cnn", (64,), ["cnn needs images", "are 64"]),
        ({"kind": "resnet", "depth": 8}, (2, 3), ["resnet needs images", "2 x 3"]),
        ("resnet18", (1, 2, 3, 4), ["resnet18 needs images", "1 x 2 x 3 x 4"]),
        ("cnn", (1, 8, 8), ["cnn needs images of at least 18 x 18", "1 x 8 x 8"]),
        ("cnn", (3, 17, 32), ["18 x 18", "3 x 17 x 32"]),
    ],
)
def test_an_input_that_does_not_fit_is_an_error_with_both_numbers(
    network: Any, shape: tuple[int, ...], words: list[str]
) -> None:
    with pytest.raises(SuiteError) as error:
        network_of(network, "vanilla", shape)
    for word in words:
        assert word in str(error.value)


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
def test_residual_networks_compute_what_the_papers_write(preactivation: bool) -> None:
    torch.manual_seed(0)
    network = options({"kind": "resnet", "depth": 14, "preactivation": preactivation})
    model = network.built(normalization("bn"), (3, 12, 12), 5).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(model(x), naive_resnet(model, x, preactivation))


@pytest.mark.parametrize("network", [{"kind": "resnet", "depth": 8, "preactivation": True}, "resnet18"], ids=str)
def test_without_normalization_no_activation_overwrites_a_shortcut(network: Any) -> None:
    torch.manual_seed(0)
    model = options(network).built(Normalization(), (3, 16, 16), 3).double()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    want = model(x)
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    torch.testing.assert_close(model(x), want)
