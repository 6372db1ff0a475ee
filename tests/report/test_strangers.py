"""Results from strangers: whatever stands in them is shown or named, never raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bnpbench.errors import NothingToCompare
from bnpbench.report import compare, render, verdicts
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

WORDS = st.sampled_from(
    ["bnp", "", "1e5", "a|b", "\ud800", "=x", "train_seconds", "reached", "ratio", "last", "method"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**20) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["source", "measure", "targets", "references", "claims", "shortened", "select", "cells", "description"]
CELL_FIELDS = ["label", "role", "block", "settings"]
CLAIM_FIELDS = ["says", "metric", "target", "question", "bounds", "left", "right", "where", "combinations"]
REFERENCE_FIELDS = ["metric", "value", "source", "target", "at", "cell", "cells"]
SETTINGS = ["method", "batch_size", "seed", "network", "optimizer", "device", "train_limit"]
PLACES: list[list[tuple[str | int, ...]]] = [
    [(name,) for name in FIELDS],
    [("cells", 0, name) for name in CELL_FIELDS],
    [("claims", 0, name) for name in CLAIM_FIELDS],
    [("references", 0, name) for name in REFERENCE_FIELDS],
    [("cells", 0, "settings", name) for name in SETTINGS],
]
NUMBERS = st.lists(st.none() | st.floats() | st.integers(-1, 1).map(float), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Path]:
    made = Made(tmp_path_factory.mktemp("strangers"))
    bn, bnp = (made.cell(method, rows=epochs([1.0] * 6, [0.5] * 6)) for method in ("bn", "bnp"))
    made.claim("train_seconds", "ratio", [bnp], [bn], at="all", at_most=1)
    made.claim("reached", "value", [bnp], target=0.5, at_most=1)
    made.document["targets"] = [0.5]
    made.document["references"] = [{"cells": [bn], "metric": "test_loss", "value": 1, "source": "x", "cell": {}}]
    made.read()
    return made.out, made.document, made.store.folder / "environment.json"


def _show_everything(out: Path) -> None:
    results = read_results(out)
    for name in ("markdown", "csv", "json"):
        render(results, name).encode()
    verdicts(results)
    document = results.suites.get("made")
    if document and not document.cells:  # what was measured belongs to no suite: told as such
        with pytest.raises(NothingToCompare):
            compare(results, results, across_machines=True)
    else:
        compare(results, results, across_machines=True).render()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES).flatmap(st.sampled_from), value=JSON)
@example(place=("cells",), value=[])
@example(place=("references", 0, "at"), value=[None])
@example(place=("references", 0, "at"), value={"epochs": True})
def test_no_suite_document_is_raised(
    folder: tuple[Path, dict[str, Any], Path], place: tuple[str | int, ...], value: Any
) -> None:
    out, original, _ = folder
    document = json.loads(json.dumps(original))
    reduce(getitem, place[:-1], document)[place[-1]] = value
    (out / "made" / "suite.json").write_text(json.dumps(document))
    _show_everything(out)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON, name=st.sampled_from(["hardware", "software", "details", "measurement"]))
def test_no_environment_is_raised(folder: tuple[Path, dict[str, Any], Path], value: Any, name: str) -> None:
    out, document, path = folder
    (out / "made" / "suite.json").write_text(json.dumps(document))
    whole = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(whole), name: value}))
        _show_everything(out)
    finally:
        path.write_text(whole)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seconds=NUMBERS, accuracy=NUMBERS, number=st.integers(-(2**63), 2**63 - 1))
@example(seconds=[0.0, 0.0, 1.4e159], accuracy=[None], number=0)  # an interval whose square is more than a float holds
def test_no_number_is_raised(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[float], accuracy: list[float], number: int
) -> None:
    made = Made(tmp_path_factory.mktemp("numbers"))
    rows = epochs(seconds, accuracy)
    bn = [made.cell("bn", seed=seed, rows=rows, flops_model=number) for seed in (1, 2)]
    bnp = [made.cell("bnp", seed=seed, rows=epochs([1.0] * 8, [0.5] * 8)) for seed in (1, 2)]
    made.cell("vanilla", rows=rows)
    for metric, question in (("train_seconds", "ratio"), ("test_accuracy", "ratio"), ("test_accuracy", "difference")):
        for sides in ((bn, bnp), (bnp, bn)):
            made.claim(metric, question, *sides, at="all" if metric == "train_seconds" else "best", at_most=1)
    made.claim("seconds_to", "ratio", bn, bnp, target=0.5, at_least=0)
    made.document["targets"] = [0.5]
    made.read()
    _show_everything(made.out)


def test_an_environment_of_nothing_is_an_unknown_machine(make: Callable[..., Made]) -> None:
    made = make(hardware=[1], software="x")
    made.cell("bnp", rows=epochs([1.0]))
    assert "# made on an unknown machine" in render(made.read())


# A suite.json that holds what none of ours does is shown or answered with "no data"; some of it ended the report.
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


@pytest.mark.regression
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


@pytest.mark.regression
@pytest.mark.parametrize("claim", [TIME, ACCURACY])
@pytest.mark.parametrize("at", [{"epochs": [3, 1]}, {"epochs": [1, "2"]}, {"epochs": True}, {"epoch": None}, "x", [1]])
def test_a_claim_about_no_epoch_has_no_data(made: Made, claim: int, at: Any) -> None:
    made.document["claims"][claim]["left"]["at"] = at
    found = verdicts(made.read())[claim]
    assert (found.outcome, "picks no epoch" in found.reason) == ("no data", True)


@pytest.mark.regression
@pytest.mark.parametrize("claim", [TIME, ACCURACY])
@pytest.mark.parametrize("bound", [HUGE, -HUGE, float("nan")])
def test_a_bound_that_is_no_bound_ends_nothing(made: Made, claim: int, bound: float) -> None:
    made.document["claims"][claim]["bounds"] = {"at_most": bound}
    results = made.read()
    assert "Claims: " in render(results)
    assert (verdicts(results)[claim].outcome == "no data") == (bound != bound)


@pytest.mark.regression
def test_very_many_epochs_take_no_memory(made: Made) -> None:
    for side in ("left", "right"):
        made.document["claims"][TIME][side]["at"] = {"epochs": [1, 10**18]}
    found = verdicts(made.read())[TIME]
    assert found.estimate is not None
    assert found.estimate.n == 3
