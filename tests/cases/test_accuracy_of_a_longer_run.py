"""Where an interval decides how many epochs a run has, accuracy was compared at other epochs of each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench.report import compare
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


def run(folder: Path, count: int, *, worse: float = 0.0) -> Results:
    """An accuracy that grows by 0.05 an epoch."""
    made = Made(folder)
    made.cell("bnp", rows=epochs([1.0] * count, [0.05 * epoch - worse for epoch in range(1, count + 1)]))
    return made.read()


@pytest.mark.parametrize("counts", [(7, 10), (10, 7)])
def test_the_last_epoch_of_both_is_compared(tmp_path: Path, counts: tuple[int, int]) -> None:
    base, new = (run(tmp_path / str(count), count) for count in counts)
    (change,) = [change for change in compare(base, new).changes if change.what == "accuracy"]
    assert (change.judgement, change.base, change.new) == ("same", "0.3500", "0.3500")
    assert change.remark == f"at epoch 7, of {counts[0]} and {counts[1]}"


def test_a_worse_run_differs_there(tmp_path: Path) -> None:
    comparison = compare(run(tmp_path / "base", 7), run(tmp_path / "new", 10, worse=0.05))
    assert comparison.exit_code == 1
