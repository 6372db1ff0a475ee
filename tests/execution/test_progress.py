"""How a run counts: by the seconds of its epochs, forward only, a line a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnpbench import load_suite
from bnpbench.display import LINE_EVERY, Lines
from bnpbench.execution.listing import listing
from bnpbench.execution.messages import Phase
from bnpbench.execution.options import Options
from bnpbench.execution.progress import Reporter
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite import Block
from tests.support.command import SUITE, suite
from tests.support.displays import Clock, Kept


def lines(now: Any = lambda: 0.0) -> Reporter:
    return Reporter(Lines(now, lambda: datetime(2026, 1, 2, 3, 4, 5)), "tiny")


def blocks_of(folder: Path, text: str = SUITE) -> tuple[Block, ...]:
    loaded = load_suite(suite(folder, text))
    return loaded.blocks(loaded.cells(device="cpu", threads=1))


def row(epoch: int, seconds: float = 1.0) -> Any:
    return {"epoch": epoch, "train_seconds": seconds, "train_loss": 1.0, "test_accuracy": 0.5}


@pytest.mark.regression
def test_half_a_minute_without_an_epoch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line that a minute brought had nothing to tell of a first epoch that takes longer."""
    now = Clock()
    progress = lines(now)
    (block, *_) = blocks = blocks_of(tmp_path)
    progress.start(blocks)
    progress.phase(block, Phase("epoch", "1/2", block.cells[0].key))
    assert capsys.readouterr().err == ""
    now.time = 2 * LINE_EVERY
    progress.shown.look()  # type: ignore[attr-defined]
    told = "tiny: vanilla N=10 seed=1: epoch 1/2 (0/4 cells, 0 %, 60 s)"
    assert capsys.readouterr().err == f"2026-01-02 03:04:05 {told}\n"


def test_each_stage_is_told_once_and_then_each_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = Clock()
    progress = lines(now)
    for place in range(1, 4):
        progress.stage(Phase("preflight", f"{place}/3"))
    now.time = LINE_EVERY
    progress.stage(Phase("preflight", "3/3"))
    dated = "2026-01-02 03:04:05 tiny: preflight"
    assert capsys.readouterr().err == f"{dated}\n{dated} (3/3, 30 s)\n"


WIDTHS = SUITE.replace('method = ["vanilla", "bnp"]', 'method = ["vanilla"]\nnetwork.hidden = [[4], [4, 5]]')


@pytest.mark.regression
def test_a_line_has_what_tells_its_cell_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a sweep of widths every line said `vanilla N=10`, whichever network it was about."""
    loaded = load_suite(suite(tmp_path, WIDTHS))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = lines()
    progress.start(blocks)
    for block in blocks:
        progress.finished(block, {cell.key: {"status": "ok", "seed": cell.settings.seed} for cell in block.cells})
    assert [line.rpartition(": ")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"2026-01-02 03:04:05 vanilla N=10 network.hidden={hidden} seed={seed}"
        for hidden in ("[4]", "[4, 5]")
        for seed in (1, 2)
    ]


SIZES = SUITE.replace("batch_size = 10\n", "").replace('method = ["vanilla", "bnp"]', "batch_size = [64, 4]")


@pytest.mark.regression
@pytest.mark.parametrize("small", [10.0, 160.0])
def test_time_left_follows_the_epochs_measured(tmp_path: Path, small: float) -> None:
    """Of steps bound by arithmetic an epoch takes as long at any batch size, else sixteen times as long."""
    loaded = load_suite(suite(tmp_path, SIZES.replace("seed = [1, 2]", 'method = ["vanilla"]')))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    large, fine = (next(b for b in blocks if b.cells[0].settings.batch_size == size) for size in (64, 4))
    now = Clock()
    progress = lines(now)

    def measured(block: Block, epoch: int, seconds: float) -> None:
        now.time += seconds
        progress.epoch(block, block.cells[0].key, row(epoch, seconds))

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


def test_before_an_epoch_of_a_kind_is_measured_it_takes_what_was_predicted(tmp_path: Path) -> None:
    """With three times the operations of the other, whose launches take no time beside them."""
    blocks = blocks_of(tmp_path, SIZES.replace("seed = [1, 2]", 'method = ["vanilla"]'))
    large, fine = (next(b for b in blocks if b.cells[0].settings.batch_size == size) for size in (64, 4))
    flops = {64: 10**12, 4: 3 * 10**12 // (203 // 4 // (203 // 64))}
    now = Clock()
    progress = lines(now)
    costs = {
        block.cells[0].key: Costs(Columns(flops_model=flops[block.cells[0].settings.batch_size], operators_per_step=1))
        for block in blocks
    }
    progress.start(blocks, costs)
    now.time = 10.0
    progress.epoch(large, large.cells[0].key, row(1, 10.0))
    assert progress.left() == pytest.approx(70.0, rel=0.1)  # one more of ten seconds, two of thirty
    progress.epoch(fine, fine.cells[0].key, row(1, 20.0))  # one more of each
    assert progress.share() == pytest.approx(0.5)


@pytest.mark.regression
def test_each_round_counts_from_zero(tmp_path: Path) -> None:
    """The finals counted the cells of the trials too."""
    loaded = load_suite(suite(tmp_path))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = lines()
    for _ in range(2):
        progress.start(blocks)
        for block in blocks:
            (cell,) = block.cells
            progress.finished(block, {cell.key: {"status": "ok", "seed": 1, "message": None}})
        assert progress.status() == "4/4 cells, 100 %, 0 s"


@pytest.mark.regression
def test_more_epochs_than_foreseen_leave_the_others_ahead(tmp_path: Path) -> None:
    """Epochs beyond those that the suite foresees made the time left negative."""
    loaded = load_suite(suite(tmp_path))
    asked = loaded.blocks(loaded.cells(device="cpu", threads=1))
    blocks = [replace(block, measure=block.measure.model_copy(update={"interval": 0.02})) for block in asked]
    now = Clock()
    progress = lines(now)
    progress.start(blocks)
    (cell,) = blocks[0].cells
    for epoch in range(1, 31):
        now.time += 1.0
        progress.epoch(blocks[0], cell.key, row(epoch))
    assert progress.left() == pytest.approx(6.0)  # two epochs of each of three cells
    assert 0 < progress.share() < 1
    for block in blocks[1:]:
        (cell,) = block.cells
        progress.epoch(block, cell.key, row(9))
    assert progress.left() is None  # nobody knows: no cell has ended
    assert "left" not in progress.status()
    assert "99 %" in progress.status()


CLEARS = SUITE.replace('"vanilla", "bnp"', r'{ kind = "vanilla", label = "a\u001b[2J\u0007b" }')


@pytest.mark.regression
def test_nothing_shown_is_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A label may hold anything, and a terminal obeyed what `check` and `run` wrote of it."""
    loaded = load_suite(suite(tmp_path, CLEARS))
    (block, *_) = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = lines()
    progress.start([block])
    progress.note("ended by \x1b[2J")
    progress.finished(block, {cell.key: {"status": "ok", "seed": 1} for cell in block.cells})
    for text in (listing(Options().selection(loaded), tmp_path / "none").text(), capsys.readouterr().err):
        assert "[2J" in text
        assert text.replace("\n", "").isprintable()


def test_a_line_a_job_of_what_goes_on(tmp_path: Path) -> None:
    now = Clock()
    shown = Kept(now)
    progress = Reporter(shown, "tiny")
    first, second, *_ = blocks = blocks_of(tmp_path)
    progress.start(blocks)
    progress.phase(first, Phase("data", key=first.cells[0].key))
    progress.phase(second, Phase("warm-up", key=second.cells[0].key))
    assert shown.states[-1].jobs == ("vanilla N=10 seed=1: data", "vanilla N=10 seed=2: warm-up")
    progress.epoch(first, first.cells[0].key, row(1))
    assert shown.states[-1].jobs[0] == "vanilla N=10 seed=1: epoch 1/2, loss 1, test accuracy 0.5000"
    progress.finished(first, {first.cells[0].key: {"status": "ok", "seed": 1}})
    assert shown.states[-1].jobs == ("vanilla N=10 seed=2: warm-up",)


def test_a_resumed_cell_says_from_where_it_goes_on(tmp_path: Path) -> None:
    shown = Kept(Clock())
    progress = Reporter(shown, "tiny")
    first, *_ = blocks = blocks_of(tmp_path)
    key = first.cells[0].key
    progress.start(blocks)
    told = []
    for tell in (
        lambda: progress.epoch(first, key, row(1), earlier=True),
        lambda: progress.phase(first, Phase("warm-up", "1/3", key=key)),
        lambda: progress.epoch(first, key, row(2)),
        lambda: progress.phase(first, Phase("evaluation", key=key)),
    ):
        tell()
        told += [job.partition(": ")[2] for job in shown.states[-1].jobs]
    assert told == [
        "goes on from epoch 1/2, loss 1, test accuracy 0.5000",
        "warm-up 1/3, goes on from epoch 1",
        "epoch 2/2, loss 1, test accuracy 0.5000",
        "evaluation",
    ]


def test_epochs_of_an_earlier_run_are_no_work_of_this_one(tmp_path: Path) -> None:
    now = Clock()
    progress = lines(now)
    kept, resumed, *rest = blocks = blocks_of(tmp_path)
    progress.start(blocks)
    progress.skipped(kept)
    progress.epoch(resumed, resumed.cells[0].key, row(1, 100.0), earlier=True)
    assert progress.share() == 0
    now.time = 100.0
    progress.epoch(resumed, resumed.cells[0].key, row(2, 100.0))
    assert progress.share() == pytest.approx(1 / 5)
    assert progress.left() == pytest.approx(400.0)
    for block in rest:
        progress.finished(block, {block.cells[0].key: {"status": "not-applicable", "message": "", "seed": 1}})
    progress.finished(resumed, {resumed.cells[0].key: {"status": "ok", "seed": 1}})
    assert progress.share() == 1


TURNS = SUITE.replace("epochs = 2", "epochs = 3").replace("seed = [1, 2]", "batch_size = [10, 20]") + (
    '[measure]\ninterleave = ["method"]\nwarmup_epochs = 1\n'
)
TURNS = TURNS.replace("batch_size = 10\n", "")


MOVES = ("epoch", "epoch", "resumed", "died", "phase", "skipped", "ok", "oom", "not-applicable")


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> tuple[Block, ...]:
    """Two blocks of two cells."""
    return blocks_of(tmp_path_factory.mktemp("turns"), TURNS)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from(MOVES), st.floats(0.001, 1e3))))
def test_progress_never_goes_backwards(turns: tuple[Block, ...], moves: Sequence[tuple[int, int, str, float]]) -> None:
    """Whatever becomes of cells, in whatever order, and however long their epochs turn out to take."""
    now = Clock()
    shown = Kept(now)
    progress = Reporter(shown, "turns")
    progress.start(turns, {turns[0].cells[0].key: Costs(Columns(flops_model=10**9, operators_per_step=50))})
    number = dict.fromkeys((cell.key for block in turns for cell in block.cells), 0)
    open_blocks = set(range(len(turns)))
    for place, member, move, seconds in moves:
        block, cell = turns[place], turns[place].cells[member]
        if place not in open_blocks:
            continue
        now.time += seconds
        if move in ("epoch", "resumed"):
            number[cell.key] += 1
            progress.epoch(block, cell.key, row(number[cell.key], seconds), earlier=move == "resumed")
        elif move == "died":
            number |= {one.key: 0 for one in block.cells}
            progress.again(block, block.cells)
        elif move == "phase":
            progress.phase(block, Phase("warm-up", key=cell.key))
        elif move == "skipped" and not any(number[one.key] for one in block.cells):
            open_blocks.remove(place)
            progress.skipped(block)
        elif move in ("ok", "oom", "not-applicable"):
            open_blocks.remove(place)
            records = {one.key: {"status": move, "message": "", "seed": 1} for one in block.cells}
            progress.finished(block, records)  # type: ignore[arg-type]
    shares = [state.share for state in shown.states if state.share is not None]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert (shares[-1:] == [1.0]) == (not open_blocks and shares != [])
    left = progress.left()
    assert left is None or left >= 0
