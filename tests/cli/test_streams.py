"""Closed, full and abandoned streams; tests/benchmarks/streams.py tries every command with each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.streams import CLOSED, COMMANDS, EARLY, FULL, Outcome, faults, prepare, trial

BY_NAME = {command.name: command for command in COMMANDS}
ENDS_WELL = [{2: FULL}, {0: CLOSED, 1: CLOSED, 2: CLOSED}]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(prepared: Path) -> dict[str, Outcome]:
    names = ("run failing", "report", "report html", "report nothing", "compare dearer")
    return {name: trial(prepared, BY_NAME[name], {}) for name in names}


@pytest.mark.parametrize(
    ("name", "disturbance"),
    [
        *(("run failing", disturbance) for disturbance in ENDS_WELL),
        ("run failing", {1: EARLY, 2: EARLY}),
        ("report", {1: EARLY}),
        ("report", {1: FULL}),
        ("report html", {1: FULL}),
        ("report nothing", {1: FULL}),
        ("compare dearer", {1: EARLY}),
        ("compare dearer", {1: FULL}),
    ],
)
def test_a_stream_that_takes_nothing_changes_no_answer(
    name: str, disturbance: dict[int, str], prepared: Path, undisturbed: dict[str, Outcome]
) -> None:
    outcome = trial(prepared, BY_NAME[name], disturbance)
    assert not faults(BY_NAME[name], undisturbed[name], disturbance, outcome), outcome
