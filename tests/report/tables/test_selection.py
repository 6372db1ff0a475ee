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
    assert table["columns"][6:] == columns
    assert table["rows"][0][2] == best
    assert table["rows"][0][4] == (flat or ", ".join(columns))
    assert [table["records"][0][field] for field in ("value", "low", "high")] == numbers
    for format in ("markdown", "csv"):  # noqa: A001 - the name of the option
        assert best in render(results, format)


def trials(made: Made, method: str, scores: dict[tuple[float, float | None], float | None]) -> None:
    """Of a learning rate and a damping, where the method has one; None: it diverged."""
    made.document["select"] = {"over": ["optimizer.lr", "method.damping"], "by": "validation_accuracy"}
    for (lr, damping), score in scores.items():
        rows = epochs([1.0], validation_accuracy=[0.1 if score is None else score])
        settings: dict[str, Any] = {"optimizer": {"kind": "sgd", "lr": lr}}
        settings["method"] = {"kind": method, **({} if damping is None else {"damping": damping})}
        status = {"status": "diverged"} if score is None else {}
        made.cell(method, rows=rows, settings=settings, role="trial", alone=True, **status)


def table(made: Made) -> dict[str, Any]:
    (chapter,) = json.loads(render(made.read(), "json"))
    (section,) = [s for s in chapter["sections"] if s["title"] == "Best optimizer.lr and method.damping"]
    (found,) = section["tables"]
    return dict(found)


def test_several_axes_have_a_best_point_and_each_its_neighbours(make: Make) -> None:
    made = make()
    lrs, dampings = (0.1, 0.3, 1.0), (1e-3, 1e-2)
    found = {(lr, damping): 0.5 for lr in lrs for damping in dampings}
    trials(made, "bnp", {**found, (0.3, 1e-3): 0.895, (0.3, 1e-2): 0.9, (0.1, 1e-2): 0.8, (1.0, 1e-2): None})
    trials(made, "vanilla", dict.fromkeys(((lr, None) for lr in lrs), 0.7))
    told = table(made)
    assert told["columns"][:8] == [
        "method",
        "N",
        "best optimizer.lr",
        "best method.damping",
        "published",
        "within 0.01 of the best",
        "neighbours of optimizer.lr lose",
        "neighbours of method.damping lose",
    ]
    points = [f"{lr}, {damping}" for lr in lrs for damping in (*dampings, "none")]
    assert told["columns"][8:] == points
    by_method = {row[0]: row[2:8] for row in told["rows"]}
    assert by_method["bnp"] == ["0.3", "0.01", "–", "2 of 5", "0.1000, no score", "0.0050, end"]
    assert by_method["vanilla"] == ["0.1", "none", "–", "3 of 3", "end, 0.0000", "–"]
    values = {(one["method"], one["quantity"]): (one["value"], one["low"], one["high"]) for one in told["records"]}
    assert values["bnp", "best optimizer.lr"] == (0.3, 0.3, 0.3)
    assert values["bnp", "best method.damping"] == (0.01, 0.001, 0.01)
    warnings = [note for note in told["notes"] if note.startswith("warning")]
    assert [note.partition(", is at")[0] for note in warnings] == [
        "warning: bnp at N = 16: the best method.damping, 0.01",
        "warning: vanilla at N = 16: the best optimizer.lr, 0.1",
    ]


def test_where_a_trial_is_lacking_nothing_is_chosen_on_any_axis(make: Make) -> None:
    made = make()
    trials(made, "bnp", {(0.1, 1e-3): 0.8, (0.3, 1e-3): 0.9})
    settings = {"optimizer": {"kind": "sgd", "lr": 1.0}, "method": {"kind": "bnp", "damping": 1e-3}}
    made.cell("bnp", rows=[], settings=settings, role="trial", status="timeout", alone=True)
    (row,) = table(made)["rows"]
    assert "the finals wait: 1 of 3 trials timeout" in row[2]
    assert "the finals wait: 1 of 3 trials timeout" in row[3]


def test_how_flat_one_axis_is(make: Make) -> None:
    made = make()
    made.document["select"] = {"over": "optimizer.lr", "by": "validation_accuracy"}
    for lr, score in zip((0.01, 0.1, 1.0), (0.88, 0.9, 0.5), strict=True):
        settings = {"optimizer": {"kind": "sgd", "lr": lr}}
        made.cell("bnp", rows=epochs([1.0], validation_accuracy=[score]), role="trial", settings=settings)
    assert "| 0.0200, 0.4000 " in render(made.read())


def test_a_wide_grid_shows_no_column_for_each_of_its_points(make: Make) -> None:
    made = make()
    trials(made, "bnp", {(lr / 10, damping / 10): 0.5 for lr in range(1, 5) for damping in range(1, 5)})
    assert len(table(made)["columns"]) == 8
