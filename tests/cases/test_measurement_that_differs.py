"""Two ways of measuring were compared as if they were one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import compare
from bnpbench.results import Results, Store
from tests.support.made_results import ENVIRONMENT, Made, epochs


def measured(folder: Path, measurement: Any) -> Results:
    made = Made(folder)
    made.store = Store(folder, "made", {**ENVIRONMENT, "measurement": measurement}).create()
    made.cell("bnp", rows=epochs([1.0] * 6, [0.5] * 6))
    return made.read()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(2, 5, ["measurement differs: 2 and 5"]), (None, 5, ["measurement differs: none and 5"]), (5, 5, [])],
)
def test_it_is_told(tmp_path: Path, before: Any, after: Any, expected: list[str]) -> None:
    comparison = compare(measured(tmp_path / "base", before), measured(tmp_path / "new", after))
    assert [note for note in comparison.notes if "measurement" in note] == expected
    assert comparison.exit_code == 0
