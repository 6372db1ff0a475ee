"""The best of what was tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import render
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


@pytest.mark.parametrize(("scores", "end"), [([0.9, 0.8, 0.7], 0.01), ([0.7, 0.8, 0.9], 1.0), ([0.7, 0.9, 0.8], None)])
def test_a_best_value_at_the_end_of_what_was_tried_is_told(make: Make, scores: list[float], end: float | None) -> None:
    made = make()
    made.document["select"] = {"over": "optimizer.lr", "by": "validation_accuracy", "seeds": 1}
    for lr, score in zip((0.01, 0.1, 1.0), scores, strict=True):
        settings = {"optimizer": {"kind": "sgd", "lr": lr}}
        made.cell("bnp", rows=epochs([1.0], validation_accuracy=[score]), role="trial", settings=settings)
    told = f"warning: bnp at N = 16: the best, {end}, is at the end of what was tried"
    text = render(made.read())
    assert ("at the end of what was tried" in text) == (end is not None)
    assert end is None or told in text


# The report of a suite that chooses among engines, or among tables, could never be made.
SGD, ADAM = {"kind": "sgd", "lr": 0.1}, {"kind": "adam", "lr": 0.001}


@pytest.mark.regression
@pytest.mark.parametrize(
    ("over", "values", "columns", "flat", "numbers"),
    [
        ("engine", ["eager", "compiled"], ["eager", "compiled"], "eager, compiled", [None, None, None]),
        ("optimizer", [SGD, ADAM], ["{kind = sgd, lr = 0.1}", "{kind = adam, lr = 0.001}"], None, [None, None, None]),
        ("network.hidden", [[9], [8]], ["[9]", "[8]"], "[9], [8]", [None, None, None]),
        ("deterministic", [True, False], ["true", "false"], "true, false", [None, None, None]),
        ("weight_decay.value", [None, 0.1], ["none", "0.1"], "none, 0.1", [None, None, None]),
        ("optimizer.lr", [0.2, 0.1], ["0.1", "0.2"], "0.1–0.2", [0.1, 0.1, 0.2]),
    ],
)
def test_any_value_can_be_the_best(
    tmp_path: Path, over: str, values: list[Any], columns: list[str], flat: str | None, numbers: list[float | None]
) -> None:
    """The second value of the axis is the best, the first as good."""
    made = Made(tmp_path)
    name, _, inner = over.partition(".")
    for value, score in zip(values, (0.895, 0.9), strict=True):
        settings = {name: {"kind": "fc", inner: value} if inner else value}
        rows = epochs([1.0], validation_accuracy=[score])
        made.cell("bnp", rows=rows, settings=settings, role="trial", alone=True)
    made.cell("bnp", rows=epochs([1.0], [0.9]), alone=True)
    made.document["select"] = {"over": over, "by": "validation_accuracy"}
    results = made.read()
    (chapter,) = json.loads(render(results, "json"))
    (section,) = [section for section in chapter["sections"] if section["title"] == f"Best {over}"]
    (table,) = section["tables"]
    best = "0.1" if over == "optimizer.lr" else columns[1]
    assert table["columns"][5:] == columns
    assert table["rows"][0][2] == best
    assert table["rows"][0][4] == (flat or ", ".join(columns))
    assert [table["records"][0][field] for field in ("value", "low", "high")] == numbers
    for format in ("markdown", "csv"):  # noqa: A001 - the name of the option
        assert best in render(results, format)
