"""What suite.json and environment.json hold: of other versions, of strangers, and unchanged there and back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bnpbench.measure.environment import describe
from bnpbench.records.documents import ClaimRecord, Environment, GpuDetails, Hardware, Record, SuiteRecord
from bnpbench.report import render
from bnpbench.results import read_results
from tests.support.parts import ENVIRONMENT, block, store

MEASURED = Path(__file__).parents[1] / "unchanged" / "measured"
CLAIM: dict[str, Any] = {
    "says": "it is",
    "metric": "test_accuracy",
    "question": "difference",
    "bounds": {"at_least": 0},
    "left": {"pattern": {}, "at": "last"},
    "right": {"pattern": {}, "at": "last"},
    "combinations": [{"left": {"1": "a"}, "right": {"1": "b"}}],
}


@pytest.mark.parametrize("path", sorted(MEASURED.rglob("*.json")), ids=lambda path: str(path.relative_to(MEASURED)))
def test_what_is_written_is_what_was_read(path: Path) -> None:
    unknown: set[str] = set()
    kind: type[Record] = SuiteRecord if path.name == "suite.json" else Environment
    record = kind.read(json.loads(path.read_text()), unknown)
    assert (json.dumps(record.document(), indent=1) + "\n", unknown) == (path.read_text(), set())


def test_this_machine_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # peak rates that were measured here have options unset
    here = describe()
    assert json.loads(json.dumps(here.document())) == here.model_dump()
    assert pickle.loads(pickle.dumps(here)) == here


def test_what_could_be_set_of_a_gpu_is_told() -> None:
    held = {"persistence": True, "most_clock_mhz": 1980, "set_clock_mhz": 1500, "mig": False}
    assert GpuDetails(**held).hints() == []
    for change, words in (
        ({"persistence": False}, "nvidia-smi -pm 1"),
        ({"set_clock_mhz": 1980}, "nvidia-smi -lgc"),
        ({"set_clock_mhz": None}, "nvidia-smi -lgc"),
        ({"mig": True}, "a slice of one (MIG)"),
        ({"untold": {"clock": "NVML: Not Supported"}}, "not told of the GPU: clock (NVML: Not Supported)"),
    ):
        (hint,) = GpuDetails(**{**held, **change}).hints()
        assert words in hint


def test_fields_of_another_version_are_left_out_and_named_once(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.write_block(*block(1))
    cell = {"key": "a", "settings": {"colour": "red"}, "colour": "red"}
    document = {"name": "made", "colour": 1, "cells": [cell, cell], "claims": [{**CLAIM, "colour": 1}]}
    (kept.suite_folder / "suite.json").write_text(json.dumps(document))
    told = {**ENVIRONMENT.document(), "hardware": {"cpu": "x", "numa": 4}}
    (kept.folder / "environment.json").write_text(json.dumps(told))
    results = read_results(tmp_path)
    assert results.damaged == []
    assert results.unknown == ("environment.hardware.numa", "suite.cells.colour", "suite.claims.colour", "suite.colour")
    assert results.suites["made"].cells[0].settings == {"colour": "red"}  # of a plugin, for all we know
    assert results.environments[ENVIRONMENT.id] == ENVIRONMENT


def test_fields_that_another_version_did_not_write_are_at_their_defaults() -> None:
    suite = SuiteRecord.read({"name": "old"}, set())
    assert (suite.measure.warmup_epochs, suite.targets, suite.cells, suite.select) == (None, [], [], None)
    environment = Environment.read({"id": "x"}, set())
    assert (environment.hardware, environment.rates, environment.document()) == (Hardware(), None, {"id": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("source", 5), ("select", 5), ("select", {"over": ["x"]}), ("probe", [1]), ("inks", "red"), ("bnpbench", {})],
)
def test_what_only_says_more_is_left_out_where_it_is_none_of_ours(name: str, value: Any) -> None:
    assert getattr(SuiteRecord.read({"name": "x", name: value}, set()), name) is None


@pytest.mark.parametrize("table", ["hardware", "software", "details", "rates"])
@pytest.mark.parametrize("value", [None, [1], "x", 3])
def test_a_table_of_a_machine_that_is_none_is_empty(table: str, value: Any) -> None:
    environment = Environment.read({"id": "x", table: value}, set())
    assert getattr(environment, table) == getattr(Environment(id="x"), table)


@pytest.mark.parametrize(
    "change",
    [
        {"says": 3},
        {"metric": None},
        {"target": "0.5"},
        {"question": "quotient"},
        {"bounds": {"at_most": float("nan")}},
        {"bounds": 3},
        {"right": None},
        {"question": "value"},
        {"combinations": [{"left": {"1": "a"}}]},
        {"combinations": [{"left": {"1": 2}, "right": {}}]},
        {"combinations": {}},
    ],
)
def test_a_claim_that_cannot_be_read_is_kept_as_it_is(change: dict[str, Any]) -> None:
    whole, strange = (SuiteRecord.read({"name": "x", "claims": [claim]}, set()) for claim in (CLAIM, CLAIM | change))
    assert isinstance(whole.claims[0], ClaimRecord)
    assert isinstance(strange.claims[0], dict)


@pytest.mark.parametrize("document", [[], {}, {"name": "x", "cells": [{"key": "a"}]}, {"name": "x", "targets": [True]}])
def test_a_document_without_what_it_is_nothing_without_is_refused(document: Any) -> None:
    with pytest.raises(ValidationError):
        SuiteRecord.read(document, set())


def test_a_report_of_a_suite_that_says_little(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.write_block(*block(1))
    (kept.suite_folder / "suite.json").write_text('{"name": "made"}')
    assert "each cell alone" in render(read_results(tmp_path))
