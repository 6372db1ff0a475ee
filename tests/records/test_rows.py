"""Rows of results: their columns, and the metrics among them."""

from __future__ import annotations

import math
from datetime import datetime

import pytest

from bnpbench.records.rows import (
    METRICS,
    ROWS,
    Metric,
    Table,
    columns,
    is_own,
    metric,
    metrics,
    own_numbers,
    own_text,
)

IDENTITIES = {
    "turn",
    "epoch",
    "step",
    "neuron",
    "seed",
    "batch_size",
    "devices",
    "threads",
    "jobs",
}  # say where, not how much


@pytest.mark.parametrize("table", ROWS)
def test_metrics_are_the_numbers_of_a_table(table: Table) -> None:
    numbers = {name for name, column in columns(ROWS[table]).items() if column.type in (int, float)}
    assert metrics(table).keys() | {"energy_joules"} == numbers - IDENTITIES | {"energy_joules"}


@pytest.mark.regression
@pytest.mark.parametrize("table", ROWS)
def test_a_unit_in_a_name_is_the_unit_of_the_column(table: Table) -> None:
    """``list columns`` had none beside the joules of a cell."""
    units = {"seconds": "s", "bytes": "B", "joules": "J", "mhz": "MHz", "flops": "FLOP"}
    for name, column in columns(ROWS[table]).items():
        for word in units.keys() & set(name.split("_")):
            assert column.metric is not None, name
            assert column.metric.unit == units[word], name


def test_where_a_metric_comes_from() -> None:
    names = ["train_seconds", "energy_joules", "parameters", "kappa_d", "reached"]
    assert [METRICS[name].table for name in names] == ["epochs", "epochs", "cells", "steps", "targets"]
    assert metric("splendour") == Metric()


def test_what_a_column_holds_is_said_by_its_field() -> None:
    row = columns(ROWS["cells"])
    assert (row["key"].type, row["key"].needed) == (str, True)
    assert (row["finished"].type, row["finished"].needed, row["finished"].metric) == (datetime, False, None)
    assert {name for table in ROWS.values() for name, column in columns(table).items() if column.needed} == {
        "key", "settings", "status", "epoch", "step",
    }  # fmt: skip


def test_times_of_epochs_are_taken_over_all_of_them() -> None:
    assert {name for name, known in METRICS.items() if known.timed} == {
        *(name for name in metrics("epochs") if name.endswith("seconds") or "seconds_" in name),
        "energy_joules",
    }
    assert {known.table for known in METRICS.values() if known.exact} == {"cells"}


def test_a_metric_of_a_suites_own_says_by_its_name_which_way_it_is_better() -> None:
    assert metric("score.top5") == Metric(better="higher", table="epochs")
    assert metric("error.perplexity") == Metric(better="lower", table="epochs")
    for name in ("score", "score.", "score.a b", "score.a.b", "score.a\n", "points.a", f"score.{'a' * 65}"):
        assert not is_own(name)
        assert metric(name) == Metric()


def test_its_numbers_are_read_as_they_were_written() -> None:
    numbers = {"score.top5": 0.1 + 0.2, "error.perplexity": math.inf}
    assert own_numbers(own_text(numbers)) == numbers
    assert math.isnan(own_numbers(own_text({"score.f1": math.nan}))["score.f1"])
    assert own_text({}) is None


@pytest.mark.parametrize("text", [None, 3, "", "[1.0]", "{", "[" * 100_000, '{"score.a": "1.0"}', '{"a": 1.0}',
                                  '{"score.a": true}', '{"score.a": 1}', "1" * 5000])  # fmt: skip
def test_what_a_stranger_wrote_in_their_place_is_nothing(text: object) -> None:
    assert own_numbers(text) == {}
