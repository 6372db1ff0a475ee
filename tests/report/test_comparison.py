"""The outcome of a comparison, and how it is shown."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import pytest

from bnpbench.errors import BnpbenchError
from bnpbench.report.comparison import METRIC, Change, Comparison, Judgement
from bnpbench.statistics.intervals import Estimate


def change(judgement: Judgement, quantity: str = "flops_model", ratio: Estimate | None = None) -> Change:
    return Change("counts", "quick", "bnp", 16, "seed 1", quantity, "1", "2", ratio, judgement)


@pytest.mark.parametrize(("outcome", "code"), [("no baseline", 4), ("nothing shared", 4), ("same", 0), ("changed", 1)])
def test_the_outcome_decides_the_exit_code(outcome: Any, code: int) -> None:
    assert Comparison(outcome).exit_code == code


def test_what_is_worse_stands_first_and_counts_are_summed_up() -> None:
    changes = (change("same"), change("worse"), change("same"), change("better", "parameters"))
    text = Comparison("changed", changes, shared=("a", "b")).render()
    assert text.startswith("# Comparison: 1 regression, 1 improvement\n")
    assert text.index("## Worse") < text.index("## Better") < text.index("## Counts, accuracy and status")
    assert "| flops_model | same" in text
    assert [line.split()[-2] for line in text.splitlines() if line.startswith("| flops_model |")] == ["2", "1"]
    assert Comparison("changed", changes).render("csv").count("\n") == 1 + len(changes)


def test_a_ratio_without_an_interval_has_the_reason() -> None:
    times = change("not judged", METRIC, Estimate(1.5, 2, reason="n = 2 of 6"))
    text = Comparison("same", (times,), shared=("a",)).render()
    assert "1.500 – (n = 2 of 6)" in text
    assert "warning: no time was judged" in text


@pytest.mark.regression
def test_a_ratio_of_times_is_called_one() -> None:
    """It stood under the name of the seconds."""
    changes = (change("same", METRIC, Estimate(1.5, 12, 1.4, 1.6)), change("not judged", METRIC), change("same"))
    rows = list(csv.DictReader(StringIO(Comparison("same", changes).render("csv"))))
    assert [(row["quantity"], row["value"]) for row in rows] == [
        ("train_seconds ratio, new / base", "1.5"), ("train_seconds ratio, new / base", ""), ("flops_model", ""),
    ]  # fmt: skip


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(BnpbenchError, match="markdown, csv, json"):
        Comparison("same").render("html")
