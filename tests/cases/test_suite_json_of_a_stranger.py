"""A suite.json that holds what none of ours does is shown or answered with "no data"; some of it ended the report."""

from __future__ import annotations

from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import compare, render, verdicts
from tests.support.made_results import Made, epochs

HUGE = 10**400  # more than a float holds
TIME, ACCURACY = 0, 1  # the claims


@pytest.fixture
def made(tmp_path: Path) -> Made:
    results = Made(tmp_path)
    rows = epochs([1.0, 1.1, 1.2], [0.5, 0.6, 0.7])
    bn, bnp = (results.cell(method, rows=rows, settings={"train_limit": 9}) for method in ("bn", "bnp"))
    for metric in ("train_seconds", "test_accuracy"):
        results.claim(metric, "ratio", [bnp], [bn], at_most=1)
    results.document["targets"] = [0.5]
    return results


@pytest.mark.parametrize(
    ("place", "value", "shown"),
    [
        (("cells", 0, "settings", "train_limit"), ["x"], "trained on the first [x] examples"),
        (("cells", 0, "settings", "device"), ["x"], "[x]"),
        (("cells", 0, "settings", "network", "hidden"), [HUGE], "made"),
        (("cells", 0, "settings", "batch_size"), HUGE, "made"),
        (("targets", 0), HUGE, "Time to accuracy"),
        (("select",), 5, "made"),
        (("select",), {"over": ["x"]}, "made"),
    ],
)
def test_it_is_shown(made: Made, place: tuple[Any, ...], value: Any, shown: str) -> None:
    reduce(getitem, place[:-1], made.document)[place[-1]] = value
    results = made.read()
    assert shown in render(results)
    compare(results, results)


@pytest.mark.parametrize("claim", [TIME, ACCURACY])
@pytest.mark.parametrize("at", [{"epochs": [3, 1]}, {"epochs": [1, "2"]}, {"epochs": True}, {"epoch": None}, "x", [1]])
def test_a_claim_about_no_epoch_has_no_data(made: Made, claim: int, at: Any) -> None:
    made.document["claims"][claim]["left"]["at"] = at
    found = verdicts(made.read())[claim]
    assert (found.outcome, "picks no epoch" in found.reason) == ("no data", True)


@pytest.mark.parametrize("claim", [TIME, ACCURACY])
@pytest.mark.parametrize("bound", [HUGE, -HUGE, float("nan")])
def test_a_bound_that_is_no_bound_ends_nothing(made: Made, claim: int, bound: float) -> None:
    made.document["claims"][claim]["bounds"] = {"at_most": bound}
    results = made.read()
    assert "Claims: " in render(results)
    assert (verdicts(results)[claim].outcome == "no data") == (bound != bound)


def test_very_many_epochs_take_no_memory(made: Made) -> None:
    for side in ("left", "right"):
        made.document["claims"][TIME][side]["at"] = {"epochs": [1, 10**18]}
    found = verdicts(made.read())[TIME]
    assert found.estimate is not None
    assert found.estimate.n == 3
