"""Merging parts loses nothing, and neither does an interruption of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bnpbench.errors import ResultsError
from bnpbench.results import compact, compacting, part, read_results
from tests.support import dying
from tests.support.parts import block, canonicals, hashed, identity_of, rewritten, store, written


def filled(folder: Path) -> Path:
    kept = store(folder)
    for seeds in ((1, 2), (3,), (4,)):
        kept.write_block(*block(*seeds, steps=1))
    return folder


def same(folder: Path, other: Path) -> bool:
    one, two = read_results(folder), read_results(other)
    order = {"cells": ["key"], "epochs": ["key", "epoch"], "steps": ["key", "epoch", "step"]}
    tables = [(getattr(one, kind), getattr(two, kind), by) for kind, by in order.items()]
    return not one.damaged and all(
        a.sort_values(by).reset_index(drop=True).equals(b.sort_values(by).reset_index(drop=True)) for a, b, by in tables
    )


def test_how_many_parts_are_merged_is_told(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    parts = sum(1 for _ in folder.rglob("*/*/*.parquet"))
    told: list[tuple[int, int, str]] = []
    (place,) = compact(folder, lambda *far: told.append(far))
    assert told == [(done, parts, place.name) for done in range(parts + 1)]


def test_merging_is_lossless_and_can_be_done_again(tmp_path: Path) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    assert list(compact(after).values()) == [4]
    assert not list(after.rglob("cells/*.parquet"))
    assert same(after, before)
    assert list(compact(after).values()) == [4]
    assert same(after, before)
    for folder in (before, after):
        store(folder).write_block(*block(3, run=7))
    assert same(after, before)
    assert list(compact(after).values()) == [4]
    assert same(after, before)
    made = block(1, 2, steps=1)
    assert store(after).finished(identity_of(made), {cell["key"]: cell["settings"] for cell in made[0]})


@pytest.mark.parametrize("scene", dying.COMPACTIONS)
def test_whenever_it_dies_the_same_cells_are_read(scene: str, tmp_path: Path) -> None:
    """At every rename and every removal."""
    *folders, whole = dying.deaths(scene, tmp_path)
    for out in folders:
        assert same(out, whole)
        made = block(1, 2)
        assert store(out).finished(identity_of(made), canonicals(made))  # a run that comes next
        assert same(out, whole)
        compact(out)
        assert same(out, whole)
        assert dying.litter(out) == []
        assert not list(out.glob("*/*/*/*.parquet"))


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(part, "sync", full)
    with pytest.raises(ResultsError, match="No space left"):
        compact(after)
    monkeypatch.undo()
    assert same(after, before)
    assert dying.litter(after) == []


def test_a_block_that_is_being_measured_is_merged_as_it_was(tmp_path: Path) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    with store(after).lock(identity_of(block(3))):
        assert list(compact(after).values()) == [4]
        assert same(after, before)
        for folder in (before, after):
            store(folder).write_block(*block(3, run=7))
    assert same(after, before)


@pytest.mark.regression
def test_a_run_that_commits_and_a_compaction_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that was committed between the reading of parts and their removal was lost."""
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    read, started = compacting.read_environment, threading.Event()

    def slow(*arguments: Any) -> Any:
        found = read(*arguments)
        started.set()
        time.sleep(0.5)
        return found

    monkeypatch.setattr(compacting, "read_environment", slow)
    with ThreadPoolExecutor(2) as pool:
        compactions = [pool.submit(compact, after) for _ in range(2)]
        started.wait()
        for numbers in ((3,), (4,), (5,)):
            store(after).write_block(*block(*numbers, run=7, epochs=3))
        assert [list(done.result().values()) for done in compactions] in ([[4], [5]], [[5], [4]], [[4], [4]])
    monkeypatch.undo()
    for numbers in ((3,), (4,), (5,)):
        store(before).write_block(*block(*numbers, run=7, epochs=3))
    assert same(after, before)


@pytest.mark.regression
def test_what_another_process_merged_is_known_to_be_finished(tmp_path: Path) -> None:
    """A stopped run that had looked before the other compacted hid the finished cell behind an interrupted one."""
    filled(tmp_path)
    compact(tmp_path)
    kept, made = store(tmp_path), block(3, steps=1)
    assert not kept.finished("another", canonicals(made))  # it has looked at what is merged
    written(tmp_path, [block(3, run=7), block(5)])
    compact(tmp_path)
    for numbers in ((3,), (5,)):
        kept.write_block(*block(*numbers, run=8, status="interrupted"), over_finished=False)
    results = read_results(tmp_path)
    assert set(results.cells.status) == {"ok"}
    assert set(results.cells[results.cells.key.isin([hashed(3)[0], hashed(5)[0]])].label) == {"run 7", "run 0"}


@pytest.mark.parametrize("kind", ["epochs", "steps"])
def test_a_part_whose_rows_are_damaged_hides_nothing_that_was_merged(kind: str, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    compact(folder)
    before = read_results(folder)
    store(folder).write_block(*block(3, run=7, steps=1))
    (rows,) = folder.glob(f"*/*/{kind}/*.parquet")
    rows.write_bytes(rows.read_bytes()[:-20])
    after = read_results(folder)
    assert rows in [path for path, _ in after.damaged]
    assert set(after.cells.label) == set(before.cells.label)
    assert (len(after.cells), len(after.epochs), len(after.steps)) == (4, 8, 4)
    assert list(compact(folder).values()) == [4]
    assert rows.exists()


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
def test_a_damaged_merged_file_is_refused_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    compact(folder)
    store(folder).write_block(*block(5, steps=1))
    (merged,) = folder.glob(f"*/*/{kind}.parquet")
    whole = merged.read_bytes()
    merged.write_bytes(whole[:-20])
    files = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    with pytest.raises(ResultsError, match=f"{kind}.parquet.*move it away"):
        compact(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.parquet")} == files
    merged.write_bytes(whole)
    assert list(compact(folder).values()) == [5]


@pytest.mark.parametrize("locked", [False, True])
def test_a_damaged_part_costs_nothing_of_what_was_merged_before(locked: bool, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    compact(folder)
    before = read_results(folder)
    made = block(3, run=7)
    store(folder).write_block(*made)
    (part,) = folder.glob("*/*/cells/*.parquet")
    part.write_bytes(part.read_bytes()[:-20])
    with ExitStack() as stack:
        if locked:
            stack.enter_context(store(folder).lock(identity_of(made)))
        assert list(compact(folder).values()) == [4]
    after = read_results(folder)
    assert part.exists()
    assert part in [path for path, _ in after.damaged]
    assert (
        after.cells.sort_values("key")
        .reset_index(drop=True)
        .equals(before.cells.sort_values("key").reset_index(drop=True))
    )
    assert len(after.epochs) == len(before.epochs)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder"):
        compact(tmp_path / "nowhere")


def test_nothing_is_merged_that_would_be_lost(tmp_path: Path) -> None:
    folder = written(tmp_path, [block(1)]).folder
    rewritten(
        folder / "epochs" / f"{hashed(1)[0]}.parquet", lambda table: table.append_column("colour", table["epoch"])
    )
    with pytest.raises(ResultsError, match=r"epochs\.colour"):
        compact(tmp_path)
    assert not (folder / "cells.parquet").exists()
    assert len(read_results(tmp_path).epochs) == 2
