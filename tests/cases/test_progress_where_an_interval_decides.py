"""Epochs beyond those that the suite foresees made the time left negative."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.progress import Lines
from tests.command import suite


def test_more_epochs_than_foreseen_leave_the_others_ahead(tmp_path: Path) -> None:
    loaded = load_suite(suite(tmp_path))
    asked = loaded.blocks(loaded.cells(device="cpu", threads=1))
    blocks = [replace(block, measure=block.measure.model_copy(update={"interval": 0.02})) for block in asked]
    clock = 0.0
    progress = Lines(now=lambda: clock)
    progress.start(blocks)
    (cell,) = blocks[0].cells
    for epoch in range(1, 31):
        clock += 1.0
        row = {"epoch": epoch, "train_seconds": 1.0, "train_loss": 1.0, "test_accuracy": 0.5}
        progress.epoch(blocks[0], cell.key, row)
    assert progress.left() == pytest.approx(6.0)  # two epochs of each of three cells
    assert 0 < progress.share() < 1
    for block in blocks[1:]:
        (cell,) = block.cells
        progress.epoch(block, cell.key, {"epoch": 9, "train_seconds": 1.0, "train_loss": 1.0, "test_accuracy": 0.5})
    assert progress.left() is None  # nobody knows: no cell has ended
    assert "left" not in progress.status()
