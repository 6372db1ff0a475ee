"""Dense networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.bnp.lean import Linear
from bnpbench.layers import BatchRenorm, FourThings
from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.networks import CIFAR, network_of, normalization, parameters

LAYERS = {
    "bn": nn.BatchNorm1d,
    "bn-pre": nn.BatchNorm1d,
    "renorm": BatchRenorm,
    "ln": nn.LayerNorm,
    "gn": nn.GroupNorm,
    "4things": FourThings,
    "bnp+gn": nn.GroupNorm,
}
HIDDEN = {"kind": "fc", "hidden": (16, 12)}


@pytest.mark.parametrize(
    ("hidden", "method", "shape", "classes", "by_hand"),
    [
        ((100, 100, 100), "vanilla", CIFAR, 10, 307_300 + 2 * 10_100 + 1_010),
        ((100, 100), "bn", CIFAR, 10, 307_300 + 10_100 + 1_010 + 400),
        ((), "bn", (64,), 3, 65 * 3),
    ],
)
def test_number_of_parameters(
    hidden: tuple[int, ...], method: str, shape: tuple[int, ...], classes: int, by_hand: int
) -> None:
    assert parameters(network_of({"kind": "fc", "hidden": hidden}, method, shape, classes)) == by_hand


@pytest.mark.parametrize(("method", "layer"), LAYERS.items())
def test_the_methods_layer_stands_at_every_hidden_layer(method: str, layer: type[nn.Module]) -> None:
    model = network_of(HIDDEN, method)
    order = ["norm", "relu"] if method == "bn-pre" else ["relu", "norm"]
    hidden = [f"hidden{n}{suffix}" for n in (1, 2) for suffix in ("", f"_{order[0]}", f"_{order[1]}")]
    assert [name for name, _ in model.named_children()] == [*hidden, "output"]
    assert type(model.hidden1_norm) is layer
    assert type(model.hidden2_norm) is layer


@pytest.mark.parametrize("method", ["vanilla", "bnp"])
def test_a_method_without_normalization_adds_no_layer(method: str) -> None:
    assert {type(module) for module in network_of(HIDDEN, method).children()} == {Linear, nn.ReLU}


@pytest.mark.parametrize("method", ["vanilla", "bn", "bn-pre"])
def test_it_computes_what_its_layers_say(method: str) -> None:
    """With batch statistics, epsilon 1e-3."""
    torch.manual_seed(0)
    model = made("network", {"kind": "fc", "hidden": (5, 4)}).built(normalization(method), (2, 3), 3).double()
    x = torch.randn(7, 6, dtype=torch.float64)
    want = x
    for name in ("hidden1", "hidden2"):
        layer = getattr(model, name)
        want = want @ layer.weight.T + layer.bias
        for part in ("norm", "relu") if method == "bn-pre" else ("relu", "norm"):
            if part == "relu":
                want = want.clamp(min=0)
            elif method != "vanilla":
                want = (want - want.mean(0)) / (want.var(0, correction=0) + 1e-3).sqrt()
    torch.testing.assert_close(model(x), want @ model.output.weight.T + model.output.bias)


@pytest.mark.parametrize("hidden", [(0,), (10, -1), (1,) * 1001])
def test_widths_that_are_none_are_refused(hidden: Any) -> None:
    with pytest.raises(ValueError, match="hidden"):
        made("network", {"kind": "fc", "hidden": hidden})


def test_images_are_read_as_rows() -> None:
    options = made("network", HIDDEN)
    assert options.reads((3, 4, 5)) == (60,)
    assert options.unreadable((3, 4, 5)) is None
    assert options.built(Normalization(), (3, 4, 5), 2)(torch.zeros(7, 60)).shape == (7, 2)
