"""Blocks: which cells share a process, in what order they take turns, and what their id depends on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from bnpbench.suite import Block, Cell, Measure, Probe, Suite
from tests.support.command import SUITE, called, suite
from tests.support.suite_texts import SMALL, changed

Load = Callable[[str], Suite]
INTERLEAVED = '[measure]\ninterleave = ["method"]\n'


def blocks(suite: Suite) -> list[list[tuple[str, int, int]]]:
    """Label, batch size and seed of every member of every block."""
    found = suite.blocks(suite.cells(device="cpu", threads=1))
    return [[(c.label, c.settings.batch_size, c.settings.seed) for c in block.cells] for block in found]


def test_a_cell_is_a_block_where_nothing_interleaves(load: Load) -> None:
    suite = load(SMALL)
    cells = suite.cells(device="cpu", threads=1)
    assert [block.cells for block in suite.blocks(cells)] == [(cell,) for cell in cells]
    assert not any(block.interleaved for block in suite.blocks(cells))


def test_interleaved_methods_share_a_block(load: Load) -> None:
    assert blocks(load(SMALL + INTERLEAVED)) == [
        [(method, batch_size, seed) for method in ("vanilla", "bn", "bnp")]
        for batch_size in (16, 256)
        for seed in (1, 2, 3)
    ]
    suite = load(SMALL + INTERLEAVED)
    assert all(block.interleaved for block in suite.blocks(suite.cells(device="cpu", threads=1)))


@pytest.mark.regression
def test_a_run_cut_short_keeps_the_schedule_of_the_whole(load: Load) -> None:
    """And has keys of its own: a suite of two epochs falls within these."""
    cosine = changed(SMALL, "epochs = 20", 'epochs = 20\nschedule = "cosine"')
    cut, short = load(cosine), load(changed(cosine, "epochs = 20", "epochs = 2"))
    cells = cut.cells(device="cpu", threads=1, epochs=2)
    assert {cell.settings.schedule.epochs for cell in cells} == {20}  # type: ignore[attr-defined]
    assert not {cell.key for cell in cells} & {cell.key for cell in short.cells(device="cpu", threads=1)}
    steps = load(SMALL).cells(device="cpu", threads=1, epochs=2)
    same = load(changed(SMALL, "epochs = 20", "epochs = 2")).cells(device="cpu", threads=1)
    assert {cell.key for cell in steps} == {cell.key for cell in same}


def test_two_axes_interleave_together(load: Load) -> None:
    found = blocks(load(SMALL + INTERLEAVED.replace('"method"', '"method", "batch_size"')))
    assert [len(block) for block in found] == [6, 6, 6]
    assert [{seed for _, _, seed in block} for block in found] == [{1}, {2}, {3}]


def test_an_axis_by_its_dotted_name(load: Load) -> None:
    text = (
        changed(SMALL, "seed = [1, 2, 3]", "optimizer.lr = [0.1, 0.5]") + '[measure]\ninterleave = ["optimizer.lr"]\n'
    )
    assert [len(block) for block in blocks(load(text))] == [2] * 6


def test_what_an_override_gives_a_method_does_not_part_it_from_its_block(load: Load) -> None:
    text = SMALL + '[[override]]\nwhen = { method = "bn" }\nset = { optimizer.lr = 0.5 }\n' + INTERLEAVED
    assert [len(block) for block in blocks(load(text))] == [3] * 6


def finals(suite: Suite, best: dict[str, float], setting: Callable[[Cell], float]) -> tuple[Cell, ...]:
    """Those that follow where each method has this value as its best."""
    trials = suite.cells(device="cpu", threads=1)
    scores = {cell.key: float(setting(cell) == best[cell.label]) for cell in trials}
    return suite.finals(scores, device="cpu", threads=1)


def test_finals_take_turns_whatever_values_were_chosen_for_them(load: Load) -> None:
    text = changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1") + "optimizer.lr = [0.1, 0.5]\n"
    suite = load(text + INTERLEAVED + '[select]\nover = "optimizer.lr"\n')
    best = {"vanilla": 0.5, "bn": 0.1, "bnp": 0.5}
    chosen = finals(suite, best, lambda cell: cell.settings.optimizer.lr)
    found = [[(c.label, c.settings.optimizer.lr) for c in block.cells] for block in suite.blocks(chosen)]
    assert found == [list(best.items())] * 2 * 3  # batch sizes, seeds
    trials = suite.cells(device="cpu", threads=1)
    assert [{c.settings.optimizer.lr for c in block.cells} for block in suite.blocks(trials)] == [{0.1}, {0.5}] * 2
    apart = {block.id for block in (*suite.blocks(trials), *suite.blocks(chosen))}
    assert {block.id for block in suite.blocks((*trials, *chosen))} == apart
    planned = {cell.key: cell.block for cell in suite.document((*trials, *chosen)).cells}
    assert {*planned.values()} == apart


def test_finals_that_cannot_share_a_process_take_no_turns(load: Load) -> None:
    text = changed(SMALL, "epochs = 20", "validation = 0.1") + "epochs = [5, 20]\n"
    suite = load(text + INTERLEAVED + '[select]\nover = "epochs"\n')
    chosen = finals(suite, {"vanilla": 5, "bn": 20, "bnp": 20}, lambda cell: cell.settings.epochs)
    assert [[c.label for c in block.cells] for block in suite.blocks(chosen)] == [["vanilla"]] * 6 + [["bn", "bnp"]] * 6


def test_a_block_keeps_its_members_under_only(load: Load) -> None:
    suite = load(SMALL + INTERLEAVED)
    chosen = suite.cells(device="cpu", threads=1, only=["method=bn,bnp", "batch_size=16"])
    assert [[c.label for c in block.cells] for block in suite.blocks(chosen)] == [["bn", "bnp"]] * 3


@pytest.mark.parametrize(
    ("members", "epoch", "turns"),
    [
        (1, 1, (0,)),
        (1, 2, (0,)),
        (2, 1, (0, 1)),
        (2, 2, (1, 0)),
        (3, 1, (0, 1, 2)),
        (3, 2, (2, 1, 0)),
        (3, 3, (0, 1, 2)),
    ],
)
def test_turns(load: Load, members: int, epoch: int, turns: tuple[int, ...]) -> None:
    cells = load(SMALL).cells(device="cpu", threads=1)[:members]
    assert Block(cells, Measure()).turns(epoch) == turns


def test_what_a_block_id_depends_on(load: Load) -> None:
    cells = load(SMALL).cells(device="cpu", threads=1)[:3]
    block = Block(cells, Measure())
    assert len(block.id) == 12
    assert int(block.id, 16) >= 0
    same = [
        Block(cells[::-1], Measure()),
        Block(cells, Measure(interleave=("method",))),
        Block(cells, Measure(warmup_epochs=0)),
    ]
    assert {other.id for other in same} == {block.id}
    others = [
        Block(cells[:2], Measure()),
        Block(cells, Measure(warmup_epochs=1)),
        Block(cells, Measure(interleave=("method",), interval=0.02)),
        Block(cells, Measure(interleave=("method",), interval=0.02, max_epochs=50)),
        Block(cells, Measure(interleave=("method",), interval=0.02, max_seconds=50.0)),
        Block(cells, Measure(), Probe(layer="output")),
        Block(cells, Measure(), Probe(layer="output", every=2)),
    ]
    assert len({block.id, *(other.id for other in others)}) == 8


def test_a_golden_block_id() -> None:
    """It changes with the rules of ids alone, and then every block is measured again."""
    text = (
        '{"batch_size":60,"dataset":{"kind":"digits"},"device":"cpu","engine":"eager","epochs":8,"method":{"kind":"%s"},'
        '"network":{"hidden":[100,100],"kind":"fc"},"optimizer":{"kind":"sgd","lr":0.5},"threads":1}'
    )
    cells = tuple(Cell.from_canonical(text % kind) for kind in ("bn", "bnp"))
    assert Block(cells, Measure(interleave=("method",), warmup_epochs=1)).id == "3bf897552d01"


def test_measure_reads_a_share(load: Load) -> None:
    text = SMALL + INTERLEAVED + 'interval = "2.5%"\nmax_epochs = 40\nmax_seconds = 60\n'
    measure = load(text).measure
    assert measure == Measure(interleave=("method",), interval=0.025, max_epochs=40, max_seconds=60.0)
    assert load(text.replace('"2.5%"', "0.1")).measure.interval == 0.1


TUNED = SUITE.replace("threads = 1", "threads = 1\nvalidation = 0.1") + (
    'optimizer.lr = [0.1, 0.2]\n[select]\nover = "optimizer.lr"\n'
)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("only", "told"),
    [
        ("batch_size=10,11", "--only batch_size=10,11: 11: no cell has this batch_size; there are: 10"),
        ("method=bnp,batch_size=10", "a comma parts values of one setting: write --only batch_size=10 by itself"),
        ("method=bnp,vanila", "no cell has this method; there are: vanilla, bnp (did you mean 'vanilla'?)"),
        ("network.hidden=[9,8],[9]", "a list: no cell has this network"),
    ],
)
def test_each_alternative_is_some_cell_s(only: str, told: str, tmp_path: Path) -> None:
    """``--only batch_size=10,11`` ran the cells of 10 and said nothing of 11."""
    with pytest.raises(SuiteError, match=re.escape(told)):
        load_suite(suite(tmp_path)).cells(device="cpu", threads=1, only=[only])


@pytest.mark.regression
def test_cells_that_are_left_out_or_come_later_count(tmp_path: Path) -> None:
    assert len(load_suite(suite(tmp_path)).cells(device="cpu", threads=1, only=["seed=1,2"], seeds=1)) == 2
    tuned = load_suite(suite(tmp_path, TUNED))
    only = ["seed=1,2", "optimizer.lr=0.1,0.2"]
    trials = tuned.cells(device="cpu", threads=1, only=only)
    assert len(trials) == 4
    scores = {cell.key: cell.settings.optimizer.lr for cell in trials}
    assert len(tuned.finals(scores, device="cpu", threads=1, only=only)) == 4


OPTIMIZERS = SUITE.replace('optimizer = { kind = "sgd", lr = 0.1 }\n', "validation = 0.1\n") + (
    'optimizer = [{ kind = "sgd", lr = 0.1 }, { kind = "adam" }]\n[select]\nover = "optimizer"\n'
)


@pytest.mark.regression
def test_tables_are_chosen_from(tmp_path: Path) -> None:
    """``[select]`` chooses from any axis, also one whose values are tables."""
    path = suite(tmp_path, OPTIMIZERS)
    loaded = load_suite(path)
    trials = loaded.cells(device="cpu", threads=1)
    finals = loaded.finals(
        {cell.key: float(cell.settings.optimizer.kind == "adam") for cell in trials}, device="cpu", threads=1
    )
    assert [cell.settings.optimizer.kind for cell in finals] == ["adam"] * 4
    done = called("check", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the best optimizer of each" in done.stdout
