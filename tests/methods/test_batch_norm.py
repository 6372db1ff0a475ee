"""Batch normalization: its layers by its options, on several devices too; what it refuses; its published count."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.layers import AveragedBatchNorm, SynchronizedBatchNorm
from bnpbench.methods.preconditioning import Training
from bnpbench.sites import Site
from tests.support.kinds import made
from tests.support.networks import network_of


@pytest.mark.parametrize(("spatial_dims", "layer"), [(0, nn.BatchNorm1d), (1, nn.BatchNorm1d), (2, nn.BatchNorm2d)])
def test_it_is_torchs_own_with_the_options_values(spatial_dims: int, layer: type[nn.Module]) -> None:
    norm = made("method", {"kind": "bn", "eps": 1e-4, "momentum": 0.2}).layer(7, spatial_dims, "x")
    assert type(norm) is layer
    assert (norm.num_features, norm.eps, norm.momentum) == (7, 1e-4, 0.2)


def test_the_defaults_are_tensorflows() -> None:
    norm = made("method", "bn").layer(7, 0, "x")
    assert (norm.eps, norm.momentum) == (1e-3, 0.01)


def test_statistics_of_all_batches_are_averaged_where_that_is_asked_for() -> None:
    norm = made("method", {"kind": "bn", "inference": "averaged", "eps": 1e-4}).layer(7, 2, "x")
    assert type(norm) is AveragedBatchNorm
    assert norm.eps == 1e-4


@pytest.mark.parametrize(
    ("options", "layer", "momentum"),
    [
        ({"momentum": 0.2}, SynchronizedBatchNorm, 0.2),
        ({"inference": "averaged"}, SynchronizedBatchNorm, None),
        ({"sync": False, "momentum": 0.2}, nn.BatchNorm2d, 0.2),
    ],
)
def test_several_devices_share_statistics_unless_that_is_off(
    options: dict[str, Any], layer: type[nn.Module], momentum: float | None
) -> None:
    norm = made("method", {"kind": "bn", **options}).synchronized_layer(7, 2, "x")
    assert type(norm) is layer
    assert norm.momentum == momentum


@pytest.mark.parametrize("inference", ["averaged", "frozen"])
def test_a_momentum_that_moves_nothing_is_refused(inference: str) -> None:
    with pytest.raises(ValueError, match=f'momentum moves running values, by which inference = "{inference}"'):
        made("method", {"kind": "bn", "inference": inference, "momentum": 0.2})
    assert made("method", {"kind": "bn", "inference": inference, "momentum": 0.01}).inference == inference


@pytest.mark.parametrize("momentum", [0.0, 1.5, -0.1])
def test_a_momentum_is_above_0_and_at_most_1(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum"):
        made("method", {"kind": "bn", "momentum": momentum})


def test_one_device_has_nothing_to_synchronize_with() -> None:
    alone = made("method", {"kind": "bn", "sync": False})
    fault = alone.refuses(Training(16))
    assert fault is not None
    assert (fault.option, "raise devices" in fault.reason) == ("sync", True)
    assert alone.refuses(Training(16, devices=2)) is None
    assert made("method", "bn").refuses(Training(16)) is None


@pytest.mark.parametrize(("positions", "examples", "values"), [(1, 16, 16), (64, 1, 64), (9, 4, 36)])
def test_a_channel_is_normalized_over_examples_and_positions(positions: int, examples: int, values: int) -> None:
    assert made("method", "bn").smallest_set(Site("conv1", 32, positions), examples) == values


@pytest.mark.parametrize("batch_size", [1, 60])
@pytest.mark.parametrize("with_input", [False, True])
def test_the_papers_count_is_32nN_and_4n_a_layer(batch_size: int, with_input: bool) -> None:  # noqa: N802
    network = {"kind": "fc", "hidden": (100, 40)}
    method = made("method", {"kind": "bn", "input": with_input})
    model = network_of(network, method.model_dump(), (3072,)).eval()
    found = method.published(model, torch.empty(batch_size, 3072, device="meta"))
    widths = [*([3072] if with_input else []), 100, 40]
    assert found.predicted == sum(32 * n * batch_size + 4 * n for n in widths)


def test_convolutions_count_positions_as_rows() -> None:
    method = made("method", "bn")
    model = network_of("cnn", "bn", (3, 18, 18)).eval()  # maps behind the poolings of 8, 3 and 1 pixels a side
    rows = [(32, 5 * 64), (64, 5 * 9), (32, 5), (64, 5)]
    found = method.published(model, torch.empty(5, 3, 18, 18, device="meta"))
    assert found.predicted == sum(32 * n * count + 4 * n for n, count in rows)
