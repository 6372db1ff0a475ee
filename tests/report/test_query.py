"""What is asked of a cell: a number, times, pairs, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from bnpbench.report.data import Cell, View, views
from bnpbench.report.query import Missing, best_epoch, more_seconds, paired_times, step_seconds, times, value
from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


Asked = Callable[..., tuple[View, Cell]]


@pytest.fixture
def asked(make: Make) -> Asked:
    """A view and its only cell."""

    def made(rows: Any, **columns: Any) -> tuple[View, Cell]:
        results = make()
        key = results.cell("bnp", rows=rows, **columns)
        (view,) = views(results.read())
        return view, view.by_key[key]

    return made


@pytest.mark.parametrize(
    ("metric", "at", "reason"),
    [
        ("nothing", "last", "no metric is called nothing"),
        ("test_loss", "last", "no test_loss"),
        ("flops_model", "last", "no flops_model"),
        ("method", "last", "no metric is called method"),
        ("test_accuracy", {"epoch": 9}, "no test_accuracy at epoch 9"),
        ("test_accuracy", {"epochs": [2, 3]}, "test_accuracy of 1 of epochs 2 to 3"),
        ("test_accuracy", [1], "at = [1] picks no epoch"),
        ("kappa_d", "last", "no kappa_d"),
    ],
)
def test_what_is_not_there_has_a_reason(asked: Asked, metric: str, at: Any, reason: str) -> None:
    assert value(*asked(epochs([1.0, 2.0], [0.5, 0.6])), metric, at) == Missing(reason)


def test_what_is_missing_is_false(asked: Asked) -> None:
    view, cell = asked(epochs([1.0]), status="oom")
    assert times(view, cell, "train_seconds") == Missing("oom")
    assert (times(view, cell, "train_seconds") or {}) == {}
    assert step_seconds(view, cell) == {}


def test_the_first_of_equal_bests_is_taken() -> None:
    assert best_epoch({1: 0.5, 2: 0.7, 3: 0.7}, "test_accuracy") == 2
    assert best_epoch({1: 0.5, 2: 0.7, 3: 0.5}, "test_loss") == 1
    assert best_epoch({1: math.nan}, "test_loss") is None


def test_a_step_is_an_epoch_over_its_steps_else_the_median_step(asked: Asked) -> None:
    assert step_seconds(*asked(epochs([2.0, 6.0], steps=[4, 3]))) == {1: 0.5, 2: 2.0}
    assert step_seconds(*asked(epochs([2.0, 6.0], step_seconds_median=[0.1, 0.0]))) == {1: 0.1}


def test_pairs_are_of_epochs_measured_in_turn(make: Make) -> None:
    made = make()
    keys = [made.cell(method, rows=epochs([seconds] * 2)) for method, seconds in (("bn", 1.0), ("bnp", 3.0))]
    alone = made.cell("ln", rows=epochs([1.0] * 2), alone=True)
    (view,) = views(made.read())
    bn, bnp, ln = (view.by_key[key] for key in (*keys, alone))
    assert paired_times(view, [bnp], [bn], "train_seconds") == [[(3.0, 1.0), (3.0, 1.0)]]
    assert paired_times(view, [ln], [bn], "train_seconds") == Missing("not measured in turn")
    assert more_seconds(view, [ln], [bn]) == []


@pytest.mark.regression
def test_no_pair_is_of_two_engines(make: Make) -> None:
    """One whose step had not been compiled was set beside one whose had."""
    made = make()
    active = {"bn": "graphed(compiled)", "bnp": "graphed(eager)"}
    keys = [made.cell(m, rows=epochs([1.0] * 2), engine="graphed", engine_active=a) for m, a in active.items()]
    (view,) = views(made.read())
    bn, bnp = (view.by_key[key] for key in keys)
    missing = Missing("graphed(eager) beside graphed(compiled)")
    assert paired_times(view, [bnp], [bn], "train_seconds") == missing
    (told,) = (s for chapter in chapters(made.read()) for s in chapter.sections if s.title == "Deviations")
    line = "no ratios of times between graphed(compiled) and graphed(eager), which ran in one block"
    assert line in told.lines
