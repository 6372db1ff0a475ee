"""The convolutional network of sections 5.2 and 5.3."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kinds import made
from tests.support.networks import network_of, parameters


@pytest.mark.parametrize(
    ("method", "parameters_of_it"),
    [("vanilla", 71_338), ("bnp", 71_338), ("bn", 71_338 + 2 * (32 + 64 + 32 + 64))],
)
def test_number_of_parameters(method: str, parameters_of_it: int) -> None:
    assert parameters(network_of("cnn", method)) == parameters_of_it


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "left"), [(18, 1), (28, 3), (32, 4)])  # 3 x 3 valid three times, halved twice
def test_number_of_parameters_of_other_sizes(channels: int, side: int, left: int) -> None:
    by_hand = (channels * 9 + 1) * 8 + (8 * 9 + 1) * 6 + (6 * 9 + 1) * 4 + (4 * left * left + 1) * 5 + (5 + 1) * 10
    options = {"kind": "cnn", "channels": (8, 6, 4), "dense": 5}
    assert parameters(network_of(options, "vanilla", (channels, side, side))) == by_hand


@pytest.mark.parametrize(
    ("method", "order"),
    [
        (
            "bn",
            "conv1 conv1_relu conv1_pool conv1_norm conv2 conv2_relu conv2_pool conv2_norm "
            "conv3 conv3_relu conv3_norm flatten dense dense_relu dense_norm output",
        ),
        (
            "bn-pre",
            "conv1 conv1_norm conv1_relu conv1_pool conv2 conv2_norm conv2_relu conv2_pool "
            "conv3 conv3_norm conv3_relu flatten dense dense_norm dense_relu output",
        ),
    ],
)
def test_the_normalization_stands_behind_the_pooling_or_before_the_activation(method: str, order: str) -> None:
    assert " ".join(name for name, _ in network_of("cnn", method).named_children()) == order


@pytest.mark.parametrize("options", [{"channels": (8, 6)}, {"channels": (8, 6, 0)}, {"dense": 0}])
def test_sizes_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"channels|dense"):
        made("network", {"kind": "cnn", **options})
