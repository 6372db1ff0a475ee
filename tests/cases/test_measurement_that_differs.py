"""Two ways of measuring were compared as if they were one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench.measure.measurement import MEASUREMENT, STEPS
from bnpbench.report import compare
from bnpbench.results import Results, Store
from tests.support.made_results import ENVIRONMENT, Made, epochs

UNKNOWN = "this version does not know what changed between them"


def measured(folder: Path, measurement: Any, seconds: float = 1.0, accuracy: float = 0.5) -> Results:
    made = Made(folder)
    made.store = Store(folder, "made", {**ENVIRONMENT, "measurement": measurement}).create()
    made.cell("bnp", rows=epochs([seconds] * 6, [accuracy] * 6), device="cpu")
    return made.read()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (4, 6, ["measurement differs: 4 and 6; what changed leaves seconds alone"]),
        (6, 5, ["measurement differs: 6 and 5; what changed leaves seconds alone"]),
        (3, 4, [f"measurement differs: 3 and 4; times are not judged: {STEPS[4].what}"]),
        (4, 2, [f"measurement differs: 4 and 2; times are not judged: {STEPS[3].what}; {STEPS[4].what}"]),
        (None, 5, [f"measurement differs: none and 5; times are not judged: {UNKNOWN}"]),
        (5, 99, [f"measurement differs: 5 and 99; times are not judged: {UNKNOWN}"]),
        ("7", 7, [f"measurement differs: 7 and 7; times are not judged: {UNKNOWN}"]),
        (5.0, 7, [f"measurement differs: 5.0 and 7; times are not judged: {UNKNOWN}"]),
        (True, [7], [f"measurement differs: true and [7]; times are not judged: {UNKNOWN}"]),
        (5, 5, []),
        (99, 99, []),
    ],
)
def test_it_is_told(tmp_path: Path, before: Any, after: Any, expected: list[str]) -> None:
    comparison = compare(measured(tmp_path / "base", before), measured(tmp_path / "new", after))
    assert [note for note in comparison.notes if "measurement" in note] == expected
    assert comparison.exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "judged"), [(4, 6, True), (5, 5, True), (3, 4, False), (6, 7, False), (None, 7, False)]
)
def test_seconds_are_judged_only_where_nothing_moved_them(
    tmp_path: Path, before: Any, after: Any, judged: bool
) -> None:
    """Twice as slow, and less accurate; the accuracy counts whatever was measured how."""
    base, new = measured(tmp_path / "base", before), measured(tmp_path / "new", after, seconds=2.0, accuracy=0.4)
    comparison = compare(base, new)
    found = {change.what: (change.judgement, change.remark) for change in comparison.changes}
    assert found["seconds per epoch"] == (("worse", "") if judged else ("not judged", "measured otherwise"))
    assert found["accuracy"] == ("worse", "")
    assert comparison.exit_code == 1
    told = comparison.render()
    assert ("measured otherwise: times are shown and not judged" in told) != judged
    assert ("warning: no time was judged" in told) != judged


def test_every_value_is_told_of() -> None:
    """Who raises MEASUREMENT says what changed, and whether seconds are comparable across it."""
    assert list(STEPS) == list(range(2, MEASUREMENT + 1))
