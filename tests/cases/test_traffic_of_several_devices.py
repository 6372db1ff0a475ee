"""Bytes of a step were said to be those of all its devices together, but counted the weights of one; so were the casts
that bf16 adds to the operators."""

from __future__ import annotations

from typing import Any

import pytest

from bnpbench.measure.step_costs import Columns
from tests.training.test_accounting_devices import of


def columns(method: Any, batch_size: int, devices: int, precision: str) -> Columns:
    return of(method, batch_size, devices, precision=precision).columns


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("method", ["vanilla", "bnp", {"kind": "bn", "sync": False}, "ln"])
def test_they_are_those_of_each_device_added_up(method: Any, precision: str) -> None:
    three, four = (columns(method, examples, 1, precision) for examples in (3, 4))
    for column in ("bytes_per_step", "operators_per_step"):
        share, larger = getattr(three, column), getattr(four, column)
        assert getattr(columns(method, 6, 2, precision), column) == 2 * share
        assert getattr(columns(method, 7, 2, precision), column) == share + larger
