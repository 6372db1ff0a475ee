"""Trials, then finals: the second round counts its own cells, not those of the first too."""

from __future__ import annotations

from pathlib import Path

from bnpbench import load_suite
from bnpbench.execution.progress import Lines
from tests.command import suite


def test_each_round_counts_from_zero(tmp_path: Path) -> None:
    loaded = load_suite(suite(tmp_path))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    for _ in range(2):
        progress.start(blocks)
        for block in blocks:
            (cell,) = block.cells
            progress.finished(block, {cell.key: {"status": "ok", "seed": 1, "message": None}})
        assert progress.status() == "4/4 cells"
