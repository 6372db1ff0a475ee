"""What is asked of a cell: a number, times, pairs, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from bnpbench.report import render
from bnpbench.report.answer import answers
from bnpbench.report.compare import compare
from bnpbench.report.data import Cell, View, views
from bnpbench.report.figures import figures
from bnpbench.report.query import ALONE, Missing, best_epoch, more_seconds, paired_times, step_seconds, times, value
from bnpbench.report.tables import chapters
from bnpbench.report.verdicts import advice, view_verdicts
from bnpbench.statistics.intervals import Estimate
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


def disturbed(made: Made, **columns: Any) -> Made:
    """Vanilla and bnp in turn, two targets, and one claim on times beside one on accuracies."""
    keys: dict[str, list[str]] = {"vanilla": [], "bnp": []}
    for seed in (1, 2, 3):
        for method, factor in (("vanilla", 1.0), ("bnp", 1.5 + seed / 500)):
            seconds = [factor * second for second in (1.0, 1.02, 0.99, 1.01, 1.03, 0.98)]
            shares = [share + (method == "bnp") * 0.05 for share in (0.1, 0.2, 0.5, 0.6, 0.7, 0.8 + seed / 1000)]
            keys[method].append(
                made.cell(
                    method, seed=seed, rows=epochs(seconds, shares, steps=[10] * 6), test_examples=1000, **columns
                )
            )
    made.document["targets"] = [0.5]
    sides = keys["bnp"], keys["vanilla"]
    made.claim("train_seconds", "ratio", *sides, at="all", at_least=1.2, says="it costs")
    made.claim("seconds_to", "ratio", *sides, target=0.5, at_least=1.2, says="it takes")
    made.claim("test_accuracy", "difference", *sides, at_least=0.01, says="it gains")
    return made


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"jobs": 2, "other_cores": 0.1}, "2 blocks were measured at a time"),
        ({"jobs": 1, "other_cores": 0.26}, "other processes used the machine"),
        ({"jobs": 3, "other_cores": 1.7}, "3 blocks were measured at a time, other processes used the machine"),
    ],
)
def test_times_that_were_disturbed_decide_nothing(make: Make, columns: dict[str, Any], why: str) -> None:
    """``why`` stands in the answer, claims and every section that shows seconds; accuracies go on as they were."""
    results = disturbed(make(), **columns).read()
    (view,) = views(results)
    (answer,) = answers(view)
    assert (answer.cost.word, answer.gain.word) == ("not comparable", "better")
    assert isinstance(answer.cost.estimate, Estimate)
    assert answer.cost.estimate.value == pytest.approx(1.5, abs=0.02)
    assert (answer.cost.estimate.low, answer.cost.estimate.reason) == (None, f"not comparable: {why}")
    found = {verdict.says: verdict for verdict in view_verdicts(view)}
    assert {says: verdict.outcome for says, verdict in found.items()} == {
        "it costs": "undecided",
        "it takes": "undecided",
        "it gains": "holds",
    }
    assert found["it costs"].reason == f"not comparable: {why}"
    assert advice(view, found["it costs"]) == f"Undecided: it costs: not comparable: {why}; {ALONE}."
    (chapter,) = chapters(results)
    sections = {section.title: section for section in chapter.sections}
    (cost_and_gain,) = sections["Cost and gain"].tables
    assert cost_and_gain.reasons == (f"† times are not comparable: {why}; {ALONE}.",)
    assert "--fresh" in ALONE
    row = dict(zip(cost_and_gain.columns, cost_and_gain.texts[0], strict=True))
    assert row["time a step over vanilla"] == row["seconds to 0.5 over vanilla"] == "1.50 †"
    for title in ("Deviations", "Time per epoch", "Time to accuracy"):
        told = [line for line in sections[title].lines if "not comparable" in line]
        assert all("(6 of 6 cells)" in line for line in told), told
        assert len(told) == len(why.split(", "))
    timed = [entry for table in sections["Time per epoch"].tables for entry in table.records if entry.value]
    assert {entry.table for entry in timed} == {"seconds per epoch", "ratio to vanilla"}
    assert {(entry.low, entry.high, entry.text) for entry in timed} == {(None, None, f"not comparable: {why}")}
    kinds = {figure.kind for figure in figures([view])}
    assert "training" in kinds
    assert not {"cost-and-gain", "cumulative-time"} & kinds
    assert {"cost-and-gain", "cumulative-time"} <= {figure.kind for figure in figures([view], every=True)}
    assert "not comparable" in render(results, format="json")


@pytest.mark.parametrize("columns", [{}, {"jobs": 1, "other_cores": 0.2}, {"jobs": 1, "other_cores": math.inf}])
def test_times_of_which_no_disturbance_is_known(make: Make, columns: dict[str, Any]) -> None:
    """An infinite load is a stranger's; older results have neither column."""
    results = disturbed(make(), **columns).read()
    (view,) = views(results)
    (answer,) = answers(view)
    assert answer.cost.word == "dearer"
    assert view_verdicts(view)[0].outcome == "holds"
    assert "not comparable" not in render(results)
    assert figures([view]) == figures([view], every=True)


def test_a_comparison_does_not_judge_times_that_were_disturbed(make: Make) -> None:
    before, after = disturbed(make("before")), disturbed(make("after"), jobs=2)
    comparison = compare(before.read(), after.read())
    assert {change.remark for change in comparison.changes if change.timed} == {"2 blocks were measured at a time"}
    assert {change.judgement for change in comparison.changes if change.timed} == {"not judged"}
