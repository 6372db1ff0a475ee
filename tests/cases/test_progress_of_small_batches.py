"""An epoch at batch size 4 is sixteen times the steps of one at 64. A network whose steps are bound by their arithmetic
takes as long for both; a small one takes sixteen times as long. The time left knows once an epoch was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.progress import Lines
from tests.command import SUITE, suite

SIZES = SUITE.replace("batch_size = 10\n", "").replace('method = ["vanilla", "bnp"]', "batch_size = [64, 4]")


@pytest.mark.parametrize("small", [10.0, 160.0])
def test_time_left_follows_the_epochs_measured(tmp_path: Path, small: float) -> None:
    loaded = load_suite(suite(tmp_path, SIZES.replace("seed = [1, 2]", 'method = ["vanilla"]')))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    large, fine = (next(b for b in blocks if b.cells[0].settings.batch_size == size) for size in (64, 4))
    clock = 0.0
    progress = Lines(now=lambda: clock)

    def measured(block: object, epoch: int, seconds: float) -> None:
        nonlocal clock
        clock += seconds
        row = {"epoch": epoch, "train_seconds": seconds, "train_loss": 1.0, "test_accuracy": 0.5}
        progress.epoch(block, block.cells[0].key, row)

    progress.start(blocks)
    assert progress.left() is None
    measured(large, 1, 10.0)
    assert progress.left() == pytest.approx(30.0)  # nothing else is known of batch size 4
    measured(large, 2, 10.0)
    measured(fine, 1, small)
    assert progress.left() == pytest.approx(small)
    measured(fine, 2, small)
    assert progress.left() == 0
    assert progress.share() == 1
