"""What was measured is not measured again, and not lost to a run that is stopped.

``--only method=bnp`` after the whole suite made blocks of one cell out of blocks of two, whose id nothing finished had:
the cell was measured again, took no turns any more, and the next whole run measured the block once more. A run that was
stopped wrote "interrupted" over cells that an earlier run had measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite, read_results, run_suite
from bnpbench.execution.progress import Silent
from tests.command import SUITE, suite

IN_TURN = SUITE.replace("seed = [1, 2]\n", "") + '[measure]\ninterleave = ["method"]\n'


class Stopped(Silent):
    """Ctrl-C at the first epoch."""

    def epoch(self, *_: Any) -> None:
        raise KeyboardInterrupt


def measured(out: Path) -> dict[str, list[Any]]:
    cells = read_results(out).cells.sort_values("label")
    return {name: cells[name].tolist() for name in ("label", "block", "status", "finished")}


def test_a_part_of_a_finished_block_is_finished(tmp_path: Path) -> None:
    whole = load_suite(suite(tmp_path, IN_TURN))
    run_suite(whole, tmp_path / "out")
    before = measured(tmp_path / "out")
    run_suite(whole, tmp_path / "out", only=("method=bnp",))
    assert measured(tmp_path / "out") == before


@pytest.mark.parametrize("change", ["fresh", "another method"])
def test_a_run_that_is_stopped_keeps_what_was_measured(tmp_path: Path, change: str) -> None:
    run_suite(load_suite(suite(tmp_path, IN_TURN)), tmp_path / "out")
    before = measured(tmp_path / "out")
    text = IN_TURN if change == "fresh" else IN_TURN.replace('"bnp"]', '"bnp", "ln"]')
    with pytest.raises(KeyboardInterrupt):
        run_suite(load_suite(suite(tmp_path, text)), tmp_path / "out", Stopped(), fresh=change == "fresh")
    assert measured(tmp_path / "out") == before
