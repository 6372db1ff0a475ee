"""Links in a folder of results: nothing is written, removed or read through one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_parts import ENVIRONMENT, block, hashed, store, written

from bnpbench.errors import ResultsError
from bnpbench.results import Store, compact, read_results

KEY = hashed(1)[0]
FOLDERS = [".", "..", "cells", "epochs", "steps", "logs", "locks", "checkpoints"]  # of an environment


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def moved(folder: Path, elsewhere: Path) -> None:
    """Put a link where a folder was."""
    folder.mkdir(exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_written_into_a_folder_that_is_a_link(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1, 2, steps=1), block(3)])
    folder = Path(os.path.normpath(kept.folder / name))
    moved(folder, tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    for attempt in (
        lambda: Store(out, "made", ENVIRONMENT).create(),
        lambda: kept.write_block(*block(1, 2, run=5)),
        lambda: kept.write_partial(KEY, [{"epoch": 1}]),
        lambda: compact(out),
    ):
        with pytest.raises(ResultsError, match="symbolic link"):
            attempt()
    if name == "..":
        with pytest.raises(ResultsError, match="symbolic link"):
            kept.write_suite({"name": "made"})
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("name", [".", "..", "cells", "epochs", "steps"])
def test_nothing_is_read_through_a_link_and_it_is_named(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = Path(os.path.normpath(written(out, [block(1, steps=1)]).folder / name))
    store(out, "other").write_block(*block(9))
    moved(folder, tmp_path / "elsewhere")
    results = read_results(out)
    assert KEY not in set(results.cells["key"])
    assert (folder, "a symbolic link; none is followed") in results.damaged
    assert len(results.cells) == 1


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    written(tmp_path / "real", [block(1)])
    (tmp_path / "out").symlink_to(tmp_path / "real")
    (tmp_path / "suite").symlink_to(tmp_path / "real" / "made")
    for place in ("out", "suite"):
        assert len(read_results(tmp_path / place).cells) == 1
        assert not read_results(tmp_path / place).damaged
    store(tmp_path / "out").write_block(*block(2))
    assert list(compact(tmp_path / "out").values()) == [2]


def test_links_under_temporary_names_are_removed_and_not_written_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1, 2, steps=1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    names = [f"{kind}/.{KEY}.parquet.tmp" for kind in ("cells", "epochs", "steps")]
    names += [f".{name}.tmp" for name in ("cells.parquet", "epochs.parquet", "steps.parquet")]
    names += [f"epochs/.{KEY}.partial.parquet.tmp", f".environment.json.{os.getpid()}.tmp", ".environment.json.tmp"]
    names += [f"../.suite.json.{os.getpid()}.tmp", "../.suite.json.tmp"]
    for target in (treasure, tmp_path / "new"):
        for name in names:
            (kept.folder / name).unlink(missing_ok=True)
            (kept.folder / name).symlink_to(target)
        kept.write_partial(KEY, [{"epoch": 1}])
        kept.write_block(*block(1, 2, run=3, steps=1))
        Store(out, "made", ENVIRONMENT).create().write_suite({"name": "made", "cells": []})
        compact(out)
        assert treasure.read_text() == "dear"
        assert not (tmp_path / "new").exists()
    assert len(read_results(out).cells) == 2


def test_links_in_place_of_files_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    for name in (f"cells/{KEY}.parquet", f"epochs/{KEY}.parquet", "environment.json"):
        (kept.folder / name).unlink()
        (kept.folder / name).symlink_to(treasure)
    store(out).write_block(*block(1, run=1))
    assert treasure.read_text() == "dear"
    assert not (kept.folder / "environment.json").is_symlink()
    assert len(read_results(out).cells) == 1


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    kept = written(tmp_path / "out", [block(1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    (kept.folder / "locks" / "b1.lock").symlink_to(treasure)
    with pytest.raises(ResultsError, match=r"b1\.lock"), kept.lock("b1"):
        pass
    assert treasure.read_text() == "dear"
