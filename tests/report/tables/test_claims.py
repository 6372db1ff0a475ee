"""Published figures beside ours."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import render
from bnpbench.report.tables import chapters
from bnpbench.text import decimals
from tests.support.made_results import Made, epochs

# A published figure of one epoch stood beside ours of another, and one of times beside the last epoch alone.
SECONDS = [1.0] * 7 + [100.0]
FACTORS = (0.99, 1.01)  # of two seeds
HALF = 12.7062 * math.log(1.01 / 0.99) / 2  # of Student's interval of their logarithms


def interval(seconds: float) -> str:
    middle = seconds * math.sqrt(0.99 * 1.01)
    numbers = (middle, middle * math.exp(-HALF), middle * math.exp(HALF))
    value, low, high = (f"{number:.{decimals(middle)}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def made(folder: Path, metric: str, at: Any) -> Made:
    results = Made(folder)
    keys = []
    for seed, factor in enumerate(FACTORS, 1):
        times = [factor * seconds for seconds in SECONDS]
        rows = epochs(times, [0.1 * epoch for epoch in range(1, 9)], evaluation_seconds=times, test_loss=SECONDS)
        keys.append(results.cell("bnp", seed=seed, rows=rows))
    reference = {"cell": {}, "cells": keys, "metric": metric, "at": at, "value": 0.25, "source": "Table 7"}
    results.document["references"] = [reference]
    return results


@pytest.mark.regression
@pytest.mark.parametrize(
    ("metric", "at", "shown"),
    [
        ("test_accuracy", {"epoch": 1}, "0.25 (epoch 1; Table 7)"),
        ("test_accuracy", "best", "0.25 (the best epoch; Table 7)"),
        ("test_accuracy", "last", "0.25 (Table 7)"),
        ("test_accuracy", None, "0.25 (Table 7)"),
        ("train_seconds", None, "0.25 (Table 7)"),
        ("train_seconds", "last", "0.25 (the last epoch; Table 7)"),
    ],
)
def test_its_epoch_stands_beside_it(tmp_path: Path, metric: str, at: Any, shown: str) -> None:
    assert shown in render(made(tmp_path, metric, at).read())


@pytest.mark.regression
@pytest.mark.parametrize(
    ("metric", "at", "what", "ours", "n"),
    [
        ("evaluation_seconds", None, "evaluation_seconds all epochs", interval(1.0), 16),
        ("evaluation_seconds", "last", "evaluation_seconds the last epoch", interval(100.0), 2),
        ("evaluation_seconds", {"epochs": [1, 3]}, "evaluation_seconds epochs 1 to 3", interval(1.0), 6),
        ("test_loss", None, "test_loss", "100.0 (100.0–100.0)", 2),
        ("test_loss", {"epoch": 1}, "test_loss epoch 1", "1.000 (1.000–1.000)", 2),
    ],
)
def test_times_are_taken_as_by_a_claim(tmp_path: Path, metric: str, at: Any, what: str, ours: str, n: int) -> None:
    (chapter,) = json.loads(render(made(tmp_path, metric, at).read(), "json"))
    (section,) = [section for section in chapter["sections"] if section["title"] == "Published figures"]
    assert section["tables"][0]["rows"] == [["bnp", "16", what, ours, "0.25", "Table 7"]]
    (record,) = section["tables"][0]["records"]
    assert (record["n"], record["text"]) == (n, "published 0.25, Table 7")


@pytest.mark.parametrize(
    ("shares", "title"),
    [
        ([0.5], "Claims: 1 of 1 holds"),
        ([0.5, 0.6], "Claims: 2 of 2 hold"),
        ([0.5, 0.1, 0.2], "Claims: 1 of 3 holds, 2 fail"),
        ([0.5, 0.6, 0.1, None, None, 0.4], "Claims: 2 of 6 hold, 1 fails, 1 undecided, 2 without data"),
    ],
)
def test_claims_are_counted(tmp_path: Path, shares: list[float | None], title: str) -> None:
    """At least 0.4 is claimed of each, and three seeds lie within 0.002."""
    results = Made(tmp_path)
    for size, share in enumerate(shares, 1):
        keys = [
            results.cell("bnp", size, s, None if share is None else epochs([1.0], [share + s / 1000 - 0.002]))
            for s in (1, 2, 3)
        ]
        results.claim("test_accuracy", "value", keys, at_least=0.4)
    assert f"## {title}\n" in render(results.read())


def test_a_shortened_run_carries_its_mark(tmp_path: Path) -> None:
    results = Made(tmp_path)
    keys = [
        results.cell("bnp", seed=s, rows=epochs([1.0 * s, 1.1 * s], [0.5, 0.6]), settings={"epochs": 2}) for s in (1, 2)
    ]
    for cell in results.document["cells"]:
        cell["epochs"] = 15
    results.claim("train_seconds", "value", keys, at="all", at_most=1e9, says="it is fast")
    results.claim("test_accuracy", "value", keys, at_least=0.1, says="it learns")
    rows = {row[1]: row for row in table(results)}
    assert (rows["it is fast"][0], rows["it is fast"][-1]) == ("holds", "2 of 15 epochs")
    assert (rows["it learns"][0], rows["it learns"][-1]) == ("no data", "shortened to 2 of 15 epochs (2 seeds)")


def test_one_value_is_undecided_and_says_so(tmp_path: Path) -> None:
    results = Made(tmp_path)
    results.claim("test_accuracy", "value", [results.cell("bnp", rows=epochs([1.0], [0.5]))], at_least=0.1)
    keys = [results.cell("bn", seed=s, rows=epochs([1.0], [0.5])) for s in (1, 2, 3)]
    results.claim("test_accuracy", "value", keys, at_least=0.1)
    one, equal = table(results)
    assert (one[0], one[4], one[6]) == ("undecided (n = 1)", "– (n = 1)", "1 seed")
    assert (equal[0], equal[4], equal[6]) == ("undecided", "– (3 equal values)", "3 seeds")


def table(results: Made) -> list[list[str]]:
    """The rows of the table of claims."""
    (chapter,) = json.loads(render(results.read(), "json"))
    (section,) = [section for section in chapter["sections"] if section["title"].startswith("Claims")]
    rows: list[list[str]] = section["tables"][0]["rows"]
    return rows


@pytest.mark.regression
def test_columns_without_a_word_are_left_out(make: Callable[..., Made]) -> None:
    made = make()
    keys = [made.cell("bnp", seed=seed, rows=epochs([1.0], [0.5 + seed / 1000])) for seed in (1, 2, 3)]
    made.claim("test_accuracy", "value", keys, at_least=0.4)
    (section,) = [s for chapter in chapters(made.read()) for s in chapter.sections if s.title.startswith("Claims")]
    assert section.tables[0].columns == ("verdict", "claim", "what", "estimate", "95 % interval", "asked", "n")


@pytest.mark.regression
def test_nothing_published_stands_beside_the_end_of_a_shorter_run(make: Callable[..., Made]) -> None:
    made = make()
    key = made.cell("bnp", rows=epochs([1.0], [0.5]), settings={"epochs": 1})
    made.document["cells"][0]["epochs"] = 20
    for metric in ("test_accuracy", "test_loss", "train_seconds"):
        made.document["references"].append({"metric": metric, "cells": [key], "value": 0.66, "source": "Table 7"})
    text = render(made.read())
    assert text.count("Table 7") == 2  # the seconds, and the loss in a table of its own
    assert "shortened to 1 of 20 epochs" in text
