"""Merging parts loses nothing, and neither does an interruption of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_parts import block, identity_of, store

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


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder"):
        compact(tmp_path / "nowhere")
