"""A suite measured on other hardware was left out of a comparison, and nothing said so beside "no regression"."""

from __future__ import annotations

from pathlib import Path

from bnpbench.report import compare
from bnpbench.results import Results, read_results
from tests.support.made_results import HARDWARE, Made, epochs


def two_suites(folder: Path, cpu: str) -> Results:
    for name, hardware in (("here", HARDWARE), ("there", {**HARDWARE, "cpu": cpu})):
        made = Made(folder, name, hardware=hardware)
        made.cell("bnp", rows=epochs([1.0] * 6, [0.5] * 6))
        made.read()
    return read_results(folder)


def test_what_was_refused_is_told(tmp_path: Path) -> None:
    base, new = two_suites(tmp_path / "base", "X"), two_suites(tmp_path / "new", "Y")
    warning = (
        "warning: suite there was measured on other hardware (cpu: X and Y): not compared; --across-machines compares "
        "what does not depend on it"
    )
    assert [note for note in compare(base, new).notes if "warning" in note] == [warning]
    assert warning in compare(base, new).render()
    assert warning not in compare(base, new, across_machines=True).notes
    assert warning not in compare(base, base).notes


def test_it_is_told_where_nothing_else_is_shared_too(tmp_path: Path) -> None:
    base, new = two_suites(tmp_path / "base", "X"), Made(tmp_path / "new", "here")
    new.cell("bn", rows=epochs([1.0] * 6, [0.5] * 6))
    new.read()
    two_suites(tmp_path / "other", "Y")
    comparison = compare(base, read_results(tmp_path / "new", tmp_path / "other" / "there"))
    assert comparison.outcome == "nothing shared"
    assert any("suite there" in note for note in comparison.notes)
