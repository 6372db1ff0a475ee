"""Merging parts loses nothing, and neither does an interruption of it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from made_parts import block, hashed, identity_of, store

from bnpbench.errors import ResultsError
from bnpbench.results import compact, compacting, read_results


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


@pytest.mark.parametrize("moment", range(1, 12))
def test_whenever_it_stops_the_same_cells_are_read(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    store(after).write_block(*block(3, run=7))
    store(before).write_block(*block(3, run=7))
    calls = 0

    def failing(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == moment:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(compacting, "sync", failing)
    if moment > 7:
        compact(after)
    else:
        with pytest.raises(ResultsError, match="No space left"):
            compact(after)
    one, two = read_results(after), read_results(before)
    assert set(one.cells.key) == set(two.cells.key)
    assert len(one.epochs) == len(two.epochs)
    monkeypatch.undo()
    compact(after)
    assert same(after, before)


def test_a_block_that_is_being_measured_stays_as_it_is(tmp_path: Path) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    with store(after).lock(identity_of(block(3))):
        assert list(compact(after).values()) == [3]
        assert len(list(after.rglob("cells/*.parquet"))) == 1
        assert same(after, before)
    compact(after)
    with store(after).lock(identity_of(block(3))):  # what was merged before stays
        assert list(compact(after).values()) == [4]
        assert same(after, before)


def test_what_a_run_writes_while_parts_are_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    compact(after)
    read = compacting.read_environment

    def overtaken(*arguments: Any) -> Any:
        found = read(*arguments)
        for numbers in ((3,), (4,), (5,)):  # merged before, merged before, new
            store(after).write_block(*block(*numbers, run=7, epochs=3))
        return found

    store(after).write_block(*block(3, run=6))
    monkeypatch.setattr(compacting, "read_environment", overtaken)
    assert list(compact(after).values()) == [2]
    monkeypatch.undo()
    for numbers in ((3,), (4,), (5,)):
        store(before).write_block(*block(*numbers, run=7, epochs=3))
    assert len(list(after.rglob("cells/*.parquet"))) == 3
    assert same(after, before)


def test_rows_that_a_run_is_about_to_commit_stay(tmp_path: Path) -> None:
    before, after = filled(tmp_path / "before"), filled(tmp_path / "after")
    compact(after)
    for folder in (before, after):
        store(folder).write_block(*block(3, run=7))
    cells = store(after).folder / "cells" / f"{hashed(3)[0]}.parquet"
    with store(after).lock(identity_of(block(3))):
        last = cells.read_bytes()  # of a commit this is renamed last
        cells.unlink()
        assert list(compact(after).values()) == [4]
        cells.write_bytes(last)
    assert same(after, before)


def test_one_compaction_waits_for_another(tmp_path: Path) -> None:
    after = filled(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with store(after).lock("compact"):
            second = pool.submit(compact, after)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.3)
        assert list(second.result(timeout=60).values()) == [4]


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


def test_more_locks_than_open_files_are_allowed() -> None:
    code = (
        "import resource; import bnpbench.results.compacting as c\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))\n"
        "c._allow_open_files(2000)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2256, 4096)\n"


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder"):
        compact(tmp_path / "nowhere")
