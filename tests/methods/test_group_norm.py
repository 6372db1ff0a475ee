"""Group normalization."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bnpbench.sites import Site
from tests.support.kinds import made

METHODS = pytest.mark.parametrize("kind", ["gn", "bnp+gn"])


@METHODS
@pytest.mark.parametrize(
    ("options", "of_32", "of_64"), [({}, 8, 16), ({"channels_per_group": 16}, 2, 4), ({"groups": 2}, 2, 2)]
)
def test_groups_by_channels_or_by_number(kind: str, options: dict[str, int], of_32: int, of_64: int) -> None:
    method = made("method", {"kind": kind, **options})
    assert [method.layer(features, 2, "x").num_groups for features in (32, 64)] == [of_32, of_64]
    assert [method.number_of_groups(features) for features in (32, 64)] == [of_32, of_64]


@METHODS
def test_each_group_of_an_example_has_its_own_moments(kind: str) -> None:
    norm = made("method", {"kind": kind, "channels_per_group": 2, "group_eps": 0.1}).layer(6, 2, "x").double()
    x = torch.randn(3, 6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
    groups = x.view(3, 3, 2, 4, 5)
    mean, variance = groups.mean((2, 3, 4), keepdim=True), groups.var((2, 3, 4), correction=0, keepdim=True)
    torch.testing.assert_close(norm(x), ((groups - mean) / (variance + 0.1).sqrt()).view_as(x))


def test_there_is_one_way_to_group() -> None:
    with pytest.raises(ValueError, match="give groups or channels_per_group, not both"):
        made("method", {"kind": "gn", "groups": 2, "channels_per_group": 8})


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        ({"channels_per_group": 5}, "channels_per_group", "5 channels a group do not divide its 16 channels"),
        ({"groups": 32}, "groups", "32 groups do not divide its 16 channels"),
        ({"channels_per_group": 8}, None, ""),
        ({"groups": 16}, None, ""),
    ],
)
def test_what_does_not_divide_is_told_with_both_numbers(
    options: dict[str, Any], option: str | None, words: str
) -> None:
    fault = made("method", {"kind": "gn", **options}).undivided("conv1", 16)
    assert (fault and fault.option) == option
    assert fault is None or f"behind layer 'conv1': {words}" in fault.reason


def test_a_group_of_one_feature_of_a_row_is_one_value() -> None:
    method = made("method", {"kind": "gn", "channels_per_group": 1})
    assert method.smallest_set(Site("hidden1", 100), examples=60) == 1
    assert method.smallest_set(Site("conv1", 32, positions=9), examples=1) == 9
