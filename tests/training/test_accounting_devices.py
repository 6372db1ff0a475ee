"""What a step costs on several devices: that of each, added up."""

from __future__ import annotations

from typing import Any

import pytest

from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite import Settings
from bnpbench.training.accounting import costs


def of(method: Any, batch_size: int, devices: int, **changes: Any) -> Costs:
    settings = {
        "dataset": {"kind": "digits"},
        "network": {"kind": "fc", "hidden": (9, 8)},
        "method": method,
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "batch_size": batch_size,
        "epochs": 1,
        "device": "cpu",
        "devices": devices,
        "engine": "eager",
        "threads": 1,
    }
    return costs(Settings.model_validate(settings | changes), (64,), 10)


@pytest.mark.parametrize("batch_size", [6, 7])
def test_products_and_formulas_are_those_of_the_whole_batch(batch_size: int) -> None:
    for method in ("vanilla", "bn", "bnp"):
        one, two = (of(method, batch_size, devices).columns for devices in (1, 2))
        for column in ("parameters", "flops_model", "flops_method_predicted", "flops_method_counted"):
            assert getattr(one, column) == getattr(two, column)


def test_each_device_preconditions_the_whole_gradient() -> None:
    """Twice what a step on half the batch executes; on an uneven batch a step on each part."""
    executed = {n: of("bnp", n, 1).columns.flops_method_executed for n in (3, 4)}
    assert all(executed.values())
    assert of("bnp", 6, 2).columns.flops_method_executed == 2 * executed[3]
    assert of("bnp", 7, 2).columns.flops_method_executed == executed[3] + executed[4]
    operators = of("bnp", 3, 1).columns.operators_per_step
    assert of("bnp", 6, 2).columns.operators_per_step == 2 * operators


def test_batch_normalization_over_one_example_a_device() -> None:
    assert of("bn", 3, 2).not_applicable is None
    reason = of({"kind": "bn", "sync": False}, 3, 2).not_applicable
    assert reason is not None
    assert "single row" in reason
    assert of({"kind": "bn", "sync": False}, 4, 2).not_applicable is None


def columns(method: Any, batch_size: int, devices: int, precision: str) -> Columns:
    return of(method, batch_size, devices, precision=precision).columns


@pytest.mark.regression
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("method", ["vanilla", "bnp", {"kind": "bn", "sync": False}, "ln"])
def test_bytes_and_operators_are_those_of_each_device_added_up(method: Any, precision: str) -> None:
    """The bytes counted the weights of one device, the operators the casts of one."""
    three, four = (columns(method, examples, 1, precision) for examples in (3, 4))
    for column in ("bytes_per_step", "operators_per_step"):
        share, larger = getattr(three, column), getattr(four, column)
        assert getattr(columns(method, 6, 2, precision), column) == 2 * share
        assert getattr(columns(method, 7, 2, precision), column) == share + larger
