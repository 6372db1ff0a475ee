"""What every network has: the shape that it reads, a normalization of its input, refusals with both numbers."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import nn

from bnpbench import NetworkPlugin
from bnpbench.errors import SuiteError
from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.networks import CIFAR, asked_for, network_of, parameters

INPUT = {"kind": "bn", "input": True}


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
    reads = made("network", network).reads(shape)
    with_input, without = (network_of(network, {"kind": "bn", "input": on}, shape) for on in (True, False))
    name, first = next(iter(with_input.named_children()))
    assert (name, type(first), first.num_features) == ("input_norm", norm, reads[0])
    rest = [name.removeprefix("network.") for name, _ in with_input.named_parameters() if "input_norm" not in name]
    assert rest == [name for name, _ in without.named_parameters()]
    called: list[str] = []
    for name, module in with_input.named_modules():
        if isinstance(module, norm | nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    with_input(torch.empty(5, *reads, device="meta"))
    assert called[0] == "input_norm"


@pytest.mark.parametrize(
    ("network", "method", "shape", "more"),
    [
        ({"kind": "fc", "hidden": ()}, "bn", (64,), 64),
        ("cnn", "renorm", CIFAR, 3),
        ({"kind": "resnet", "depth": 110}, "bn", CIFAR, 3),
    ],
)
def test_a_normalization_of_the_input_has_a_scale_and_a_shift_a_channel(
    network: Any, method: str, shape: tuple[int, ...], more: int
) -> None:
    without, with_input = (network_of(network, {"kind": method, "input": on}, shape) for on in (False, True))
    assert parameters(with_input) - parameters(without) == 2 * more


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
    assert model(torch.empty(5, *made("network", network).reads(shape), device="meta")).shape == (5, 4)


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


@pytest.mark.parametrize("position", ["post", "pre"])
@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ({"kind": "fc", "hidden": (7, 5, 7)}, (2, 3, 5)),
        ("cnn", (1, 18, 25)),
        ({"kind": "resnet", "depth": 14}, (3, 9, 8)),
        ({"kind": "resnet", "depth": 14, "preactivation": True}, (3, 9, 8)),
        ("resnet18", (3, 33, 40)),
    ],
)
def test_the_sites_foretold_are_those_that_building_asks_for(
    network: Any, shape: tuple[int, ...], position: Any
) -> None:
    options = made("network", network)
    foretold = [(site.layer, site.features, site.positions) for site in options.sites(options.reads(shape), position)]
    assert len(foretold) > 2
    assert sorted(foretold) == sorted(asked_for(network, position, shape))


class Twice(NetworkPlugin):
    kind: Literal["twice"]

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        features = input_shape[0]
        return nn.Sequential(*(normalization.make(features, 0, "one") for _ in range(2)), nn.Linear(features, classes))


def test_one_place_asked_for_twice_is_refused_by_its_name() -> None:
    with pytest.raises(SuiteError, match=r"Twice.build: the normalization of 'one' was asked for twice"):
        Twice(kind="twice").built(Normalization("post", lambda *_: nn.Identity()), (4,), 3)


def test_of_itself_a_plugin_reads_anything_and_tells_of_no_site() -> None:
    plugin = Twice(kind="twice")
    assert plugin.reads((2, 3)) == (2, 3)
    assert plugin.sites((2, 3), "post") is None
    assert plugin.unreadable((2, 3, 4, 5)) is None
    with pytest.raises(NotImplementedError, match=r"NetworkPlugin defines no build\(\)"):
        NetworkPlugin(kind="x").build(Normalization(), (2,), 3)
