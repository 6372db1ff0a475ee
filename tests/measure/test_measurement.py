"""What a measured number means, and between which values seconds are comparable."""

from __future__ import annotations

from typing import Any

import pytest

from bnpbench.measure.measurement import MEASUREMENT, STEPS, moved_seconds

UNKNOWN = "this version does not know what changed between them"


def test_the_steps_lead_from_the_second_value_to_todays_without_a_gap() -> None:
    assert list(STEPS) == list(range(2, MEASUREMENT + 1))


@pytest.mark.parametrize("value", [1, MEASUREMENT])
def test_a_value_is_comparable_with_itself(value: int) -> None:
    assert moved_seconds(value, value) is None


def test_a_change_that_left_seconds_alone_does_not_part_them() -> None:
    assert not STEPS[5].seconds
    assert not STEPS[6].seconds
    assert moved_seconds(4, 6) is moved_seconds(6, 4) is None


@pytest.mark.parametrize(("one", "other", "between"), [(4, 7, [7]), (7, 4, [7]), (1, 3, [2, 3]), (2, 3, [3])])
def test_every_change_of_seconds_between_two_values_is_told(one: int, other: int, between: list[int]) -> None:
    assert moved_seconds(one, other) == "; ".join(STEPS[value].what for value in between)


@pytest.mark.parametrize("value", [0, MEASUREMENT + 1, -1, None, "7", 7.5, True, [7]])
def test_what_no_version_wrote_is_unknown(value: Any) -> None:
    assert moved_seconds(value, 4) == moved_seconds(4, value) == UNKNOWN
