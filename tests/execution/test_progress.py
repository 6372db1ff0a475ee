"""What a run says while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.listing import listing
from bnpbench.execution.options import Options
from bnpbench.execution.progress import LINE_EVERY, Lines
from tests.support.command import SUITE, suite


@pytest.mark.regression
def test_a_minute_without_an_epoch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line that a minute brings had nothing to tell of a first epoch that takes longer."""
    loaded = load_suite(suite(tmp_path))
    times = iter([0.0, *[2 * LINE_EVERY] * 3])
    progress = Lines(now=lambda: next(times))
    progress.start(loaded.blocks(loaded.cells(device="cpu", threads=1)))
    assert capsys.readouterr().err == "no epoch yet (0/4 cells)\n"


WIDTHS = SUITE.replace('method = ["vanilla", "bnp"]', 'method = ["vanilla"]\nnetwork.hidden = [[4], [4, 5]]')


@pytest.mark.regression
def test_a_line_has_what_tells_its_cell_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a sweep of widths every line said `vanilla N=10`, whichever network it was about."""
    loaded = load_suite(suite(tmp_path, WIDTHS))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    progress.start(blocks)
    for block in blocks:
        progress.finished(block, {cell.key: {"status": "ok", "seed": cell.settings.seed} for cell in block.cells})
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"vanilla N=10 network.hidden={hidden} seed={seed}" for hidden in ("[4]", "[4, 5]") for seed in (1, 2)
    ]


SIZES = SUITE.replace("batch_size = 10\n", "").replace('method = ["vanilla", "bnp"]', "batch_size = [64, 4]")


@pytest.mark.regression
@pytest.mark.parametrize("small", [10.0, 160.0])
def test_time_left_follows_the_epochs_measured(tmp_path: Path, small: float) -> None:
    """Of steps bound by arithmetic an epoch takes as long at any batch size, else sixteen times as long."""
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


@pytest.mark.regression
def test_each_round_counts_from_zero(tmp_path: Path) -> None:
    """The finals counted the cells of the trials too."""
    loaded = load_suite(suite(tmp_path))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    for _ in range(2):
        progress.start(blocks)
        for block in blocks:
            (cell,) = block.cells
            progress.finished(block, {cell.key: {"status": "ok", "seed": 1, "message": None}})
        assert progress.status() == "4/4 cells"


@pytest.mark.regression
def test_more_epochs_than_foreseen_leave_the_others_ahead(tmp_path: Path) -> None:
    """Epochs beyond those that the suite foresees made the time left negative."""
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


CLEARS = SUITE.replace('"vanilla", "bnp"', r'{ kind = "vanilla", label = "a\u001b[2J\u0007b" }')


@pytest.mark.regression
def test_nothing_shown_is_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A label may hold anything, and a terminal obeyed what `check` and `run` wrote of it."""
    loaded = load_suite(suite(tmp_path, CLEARS))
    (block, *_) = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    progress.start([block])
    progress.note("ended by \x1b[2J")
    progress.finished(block, {cell.key: {"status": "ok", "seed": 1} for cell in block.cells})
    for text in (listing(Options().selection(loaded), tmp_path / "none"), capsys.readouterr().err):
        assert "[2J" in text
        assert text.replace("\n", "").isprintable()
