"""An environment's folder: what is not whole is named and left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bnpbench.results import read_results
from bnpbench.text import short_hash
from tests.support.parts import KEY, block, column, hashed, identity_of, reasons, rewrite, store, three, written


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (column("settings", '{"number": 2}'), "its settings hash to"),
        (column("settings", None), "its settings hash to"),
        (column("key", hashed(2)[0]), "its settings hash to"),
        (column("status", "splendid"), "no status is called 'splendid'"),
        (column("status", None), "no status is called 'None'"),
        (lambda table: pa.concat_tables([table, table]), "2 rows, a cell is one"),
        (lambda table: table.slice(0, 0), "0 rows, a cell is one"),
        (lambda table: table.append_column("colour", pa.array(["red"])), "not those that it was written with"),
        (lambda table: table.drop_columns(["seed"]), "not those that it was written with"),
        (lambda table: table.set_column(0, "key", pa.array([1])), "of other types"),
    ],
)
def test_a_part_that_is_not_what_the_store_writes_is_named(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], reason: str
) -> None:
    path = three(tmp_path)
    rewrite(path, change)
    results = read_results(tmp_path)
    assert reason in reasons(results)[path.name]
    assert results.unknown == ()
    assert KEY not in set(results.cells["key"])
    assert KEY not in set(results.epochs["key"])
    assert len(results.cells) == 2


def test_settings_that_are_no_json_object_are_named(tmp_path: Path) -> None:
    for canonical in ("[1]", "not json", "[" * 100_000):
        key = short_hash(canonical)
        cells, _, _ = block(1)
        store(tmp_path).write_block([{**cells[0], "key": key, "settings": canonical}])
        assert reasons(read_results(tmp_path))[f"{key}.parquet"] == "its settings are not a JSON object"


@pytest.mark.parametrize("whole", [None, "{", "[]", '{"members": 3}', '{"members": [], "epochs": "2", "steps": 0}'])
def test_a_footer_that_does_not_say_what_belongs_together_is_named(tmp_path: Path, whole: str | None) -> None:
    path = three(tmp_path)
    metadata = dict(pq.read_metadata(path).metadata)
    metadata.pop(b"whole")
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata | ({b"whole": whole} if whole else {})), path)
    assert "footer" in reasons(read_results(tmp_path))[path.name]


def test_unfinished_blocks_and_cells_are_named(tmp_path: Path) -> None:
    path = three(tmp_path)
    path.unlink()
    results = read_results(tmp_path)
    assert set(results.cells["key"]) == {hashed(3)[0]}
    assert f"its block lacks {KEY}" in reasons(results)[f"{hashed(2)[0]}.parquet"]
    assert "not measured to its end" in reasons(results)[path.name]


def test_a_cell_that_was_measured_again_in_another_block_leaves_the_first_whole(tmp_path: Path) -> None:
    kept = written(tmp_path, [block(1, 2)])
    kept.write_block(*block(1, run=1, name="alone"))
    results = read_results(tmp_path)
    assert results.damaged == []
    assert set(results.cells["block"]) == {identity_of(block(1, 2)), identity_of(block(1, name="alone"))}


def test_files_still_being_written_are_not_looked_at(tmp_path: Path) -> None:
    path = three(tmp_path)
    path.with_name(f".{path.name}.tmp").write_bytes(b"half")
    assert read_results(tmp_path).damaged == []


def test_merged_files_count_but_for_what_was_measured_again(tmp_path: Path) -> None:
    """One file a table, compressed, in the environment's folder: what compaction leaves."""
    folder = three(tmp_path).parent.parent
    for kind in ("cells", "epochs", "steps"):
        tables = [pq.read_table(path) for path in (folder / kind).iterdir()]
        merged = pa.concat_tables([table.replace_schema_metadata({"schema_version": "1"}) for table in tables])
        pq.write_table(merged, folder / f"{kind}.parquet", compression="zstd")
        shutil.rmtree(folder / kind)
    kept = store(tmp_path)
    results = read_results(tmp_path)
    assert (len(results.cells), len(results.epochs), len(results.steps), results.damaged) == (3, 6, 2, [])
    made = block(1, 2, steps=1)
    assert kept.finished(identity_of(made), {cell["key"]: cell["settings"] for cell in made[0]})
    assert not kept.finished("another", {KEY: hashed(1)[1]})
    kept.write_block(*block(3, run=7))
    again = read_results(tmp_path)
    assert len(again.cells) == 3
    assert set(again.cells[again.cells["key"] == hashed(3)[0]]["label"]) == {"run 7"}
    (folder / "epochs.parquet").write_bytes(b"x")
    broken = read_results(tmp_path)
    assert set(broken.cells["key"]) == {hashed(3)[0]}
    assert not store(tmp_path).finished(identity_of(made), {KEY: hashed(1)[1]})
