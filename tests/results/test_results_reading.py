"""Reading: what is damaged, foreign, unfinished or hostile is named, and nothing of it is raised."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_parts import block, hashed, identity_of, store, written

from bnpbench.errors import NothingToCompare, ResultsError
from bnpbench.results import CELLS, EPOCHS, STEPS, Results, compact, part, read_results

KEY = hashed(1)[0]


def reasons(results: Results) -> dict[str, str]:
    return {path.name: reason for path, reason in results.damaged}


def one(out: Path) -> Path:
    """A folder with a block of two cells and a block of one; the path of the first cell's part."""
    return written(out, [block(1, 2, steps=1), block(3)]).folder / "cells" / f"{KEY}.parquet"


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder") as error:
        read_results(tmp_path / "nowhere")
    assert error.value.exit_code == 2
    with pytest.raises(ResultsError):
        read_results()


@pytest.mark.parametrize("stranger", [None, "notes.txt", "photos/a.png"])
def test_a_folder_without_results_has_nothing_to_compare(tmp_path: Path, stranger: str | None) -> None:
    if stranger:
        (tmp_path / stranger).parent.mkdir(exist_ok=True)
        (tmp_path / stranger).write_text("x")
    with pytest.raises(NothingToCompare) as error:
        read_results(tmp_path)
    assert error.value.exit_code == 4


def test_a_suites_own_folder_can_be_read(tmp_path: Path) -> None:
    one(tmp_path)
    assert len(read_results(tmp_path / "made").cells) == 3


def test_several_folders_are_one_and_a_cell_counts_once(tmp_path: Path) -> None:
    written(tmp_path / "a", [block(1, 2, run=2), block(3, run=1)])
    written(tmp_path / "b", [block(1, 2, run=1), block(4, run=1)])
    results = read_results(tmp_path / "a", tmp_path / "b")
    assert dict(zip(results.cells["key"], results.cells["label"], strict=True)) == {
        hashed(1)[0]: "run 2", hashed(2)[0]: "run 2", hashed(3)[0]: "run 1", hashed(4)[0]: "run 1",
    }  # fmt: skip
    assert len(results.epochs) == 8
    assert set(results.epochs[results.epochs["key"] == KEY]["train_seconds"]) == {2.0}
    assert set(reasons(results)) == {f"{hashed(1)[0]}.parquet", f"{hashed(2)[0]}.parquet"}


def test_results_of_some_suites(tmp_path: Path) -> None:
    for name in ("a", "b"):
        kept = store(tmp_path, name)
        kept.write_suite({"name": name, "cells": []})
        kept.write_block(*block(1))
    results = read_results(tmp_path).of_suites(["b"])
    assert (set(results.cells["suite"]), set(results.epochs["suite"]), set(results.suites)) == ({"b"}, {"b"}, {"b"})


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """Writes a part anew, with the metadata it had."""
    metadata = pq.read_metadata(path).metadata
    table = change(pq.read_table(path))
    pq.write_table(table.replace_schema_metadata(metadata), path, **options)


def column(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(name)
        kind = table.schema.field(name).type
        return table.set_column(index, name, pa.array([value] * len(table), kind))

    return change


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
    path = one(tmp_path)
    rewrite(path, change)
    results = read_results(tmp_path)
    assert reason in reasons(results)[path.name]
    assert results.unknown == ()
    assert KEY not in set(results.cells["key"])
    assert KEY not in set(results.epochs["key"])
    assert len(results.cells) == 2


def test_settings_that_are_no_json_object_are_named(tmp_path: Path) -> None:
    for canonical in ("[1]", "not json", "[" * 100_000):
        key = part.key_of(canonical)
        cells, _, _ = block(1)
        store(tmp_path).write_block([{**cells[0], "key": key, "settings": canonical}])
        assert reasons(read_results(tmp_path))[f"{key}.parquet"] == "its settings are not a JSON object"


@pytest.mark.parametrize("version", ["0", "2", "one", None])
def test_another_schema_version_is_named(tmp_path: Path, version: str | None) -> None:
    path = one(tmp_path)
    metadata = {**pq.read_metadata(path).metadata, b"schema_version": version or ""}
    if version is None:
        del metadata[b"schema_version"]
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)
    assert "schema_version" in reasons(read_results(tmp_path))[path.name]


@pytest.mark.parametrize("whole", [None, "{", "[]", '{"members": 3}', '{"members": [], "epochs": "2", "steps": 0}'])
def test_a_footer_that_does_not_say_what_belongs_together_is_named(tmp_path: Path, whole: str | None) -> None:
    path = one(tmp_path)
    metadata = dict(pq.read_metadata(path).metadata)
    metadata.pop(b"whole")
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata | ({b"whole": whole} if whole else {})), path)
    assert "footer" in reasons(read_results(tmp_path))[path.name]


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"\x00" * 5000, b"{}"])
def test_a_part_that_is_no_parquet_is_named(tmp_path: Path, kind: str, content: bytes) -> None:
    path = one(tmp_path).parent.parent / kind / f"{KEY}.parquet"
    path.write_bytes(content)
    results = read_results(tmp_path)
    assert "not readable as Parquet" in next(reason for place, reason in results.damaged if place == path)
    assert KEY not in set(results.cells["key"])


def test_what_is_not_a_plain_file_is_not_opened(tmp_path: Path) -> None:
    path = one(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    os.mkfifo(path.with_name("000000000000.parquet"))
    path.with_name("000000000001.parquet").mkdir()
    assert set(reasons(read_results(tmp_path)).values()) == {"not a regular file"}


def test_unfinished_blocks_and_cells_are_named(tmp_path: Path) -> None:
    path = one(tmp_path)
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
    path = one(tmp_path)
    path.with_name(f".{path.name}.tmp").write_bytes(b"half")
    assert read_results(tmp_path).damaged == []


def big(path: Path, table: pa.Table, compression: str) -> None:
    with pq.ParquetWriter(path, table.schema, store_schema=False, compression=compression) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"schema_version": "1"})


def epochs_of(rows: int, **columns: Any) -> pa.Table:
    arrays = {f.name: pa.nulls(rows, f.type) for f in EPOCHS} | {"key": pa.repeat(pa.scalar(KEY), rows)} | columns
    return pa.table(arrays)


def repeated(text: str, rows: int) -> pa.Array:
    """One text, stored once, named in every row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [text])


@pytest.mark.parametrize(
    ("rows", "columns", "compression", "reason"),
    [
        (2_000_000, {}, "none", "2000000 rows, more than"),
        (20_000, {"block": lambda: repeated("x" * 20_000, 20_000)}, "none", "texts unpack to 400240000 bytes"),
        (1, {"block": lambda: pa.array(["x" * 70_000_000])}, "none", "bytes, more than the 67108864"),
        (1, {"block": lambda: pa.array(["x" * 70_000_000])}, "zstd", "the footer promises 7"),
        (20_000, {"train_loss": lambda: pa.array(range(20_000), pa.float64())}, "zstd", "compressed with ZSTD"),
    ],
)
def test_parts_that_would_fill_the_memory_are_named_before_they_are_read(
    tmp_path: Path, rows: int, columns: dict[str, Callable[[], pa.Array]], compression: str, reason: str
) -> None:
    path = one(tmp_path).parent.parent / "epochs" / f"{KEY}.parquet"
    big(path, epochs_of(rows, **{name: made() for name, made in columns.items()}), compression)
    results = read_results(tmp_path)
    (found,) = [text for place, text in results.damaged if place == path]
    assert reason in found


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@pytest.mark.parametrize("bomb", ["rows", "texts", "pages"])
def test_a_small_merged_file_that_unpacks_to_gigabytes_is_named_before_it_is_read(
    tmp_path: Path, kind: str, bomb: str
) -> None:
    folder = one(tmp_path).parent.parent
    compact(tmp_path)
    store(tmp_path).write_block(*block(4))
    rows = {"rows": 5_000_000, "texts": 100_000, "pages": 1}[bomb]
    schema = {"cells": CELLS, "epochs": EPOCHS, "steps": STEPS}[kind]
    arrays = {field.name: pa.nulls(rows, field.type) for field in schema}
    if bomb == "texts":
        arrays["key"] = repeated("x" * 100_000, rows)
    elif bomb == "pages":
        arrays["key"] = pa.array(["x" * 300_000_000])
    big(folder / f"{kind}.parquet", pa.table(arrays), "zstd")
    assert (folder / f"{kind}.parquet").stat().st_size < 700_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = read_results(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB
    (reason,) = [text for place, text in results.damaged if place == folder / f"{kind}.parquet"]
    assert "more than" in reason
    assert set(results.cells["key"]) == {hashed(4)[0]}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("epochs", "epoch", 2**40),
        ("epochs", "epoch", 0),
        ("epochs", "epoch", -(2**63)),
        ("epochs", "steps", 2**62),
        ("steps", "step", 2**60),
        ("steps", "epoch", -1),
        ("cells", "batch_size", 2**60),
        ("cells", "flops_model", -1),
    ],
)
def test_numbers_that_nothing_can_have_are_named(
    tmp_path: Path, kind: str, name: str, value: int, merged: bool
) -> None:
    path = one(tmp_path).parent.parent / kind / f"{KEY}.parquet"
    if merged:
        compact(tmp_path)
        path = path.parent.with_suffix(".parquet")
    rewrite(path, column(name, value))
    results = read_results(tmp_path)
    assert f"{name} {value}" in dict(results.damaged)[path]
    assert KEY not in set(results.cells["key"])


def test_an_environment_of_a_thousand_pages_is_named(tmp_path: Path) -> None:
    path = one(tmp_path).parent.parent / "environment.json"
    path.write_text(json.dumps({"id": "0123456789ab", "details": [[]] * 10**6}))
    assert "more than" in reasons(read_results(tmp_path))["environment.json"]


def test_a_long_honest_part_is_read(tmp_path: Path) -> None:
    cells, _, _ = block(1)
    steps = [{"epoch": 1, "step": n, "layer": "fc.1", "preconditioner": "batch", "kappa_d": 1.0} for n in range(60_000)]
    store(tmp_path).write_block(cells, {}, {KEY: steps})
    results = read_results(tmp_path)
    assert (len(results.steps), results.damaged) == (60_000, [])
    assert set(results.steps["layer"]) == {"fc.1"}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 100_000, "\x00", '{"name": 3}', '{"name": ""}', '{"name": "\\ud800"}',
        '{"name": "x", "cells": 3}',
        '{"name": "x", "cells": [{}]}', '{"name": "x", "cells": [{"key": "a", "settings": []}]}',
        '{"name": "x", "claims": [3]}', '{"name": "x", "references": [{"cells": [1]}]}',
        '{"name": "x", "targets": ["a"]}',
        '{"name": "x", "measure": []}', '{"name": "x", "measure": [1]}', '{"name": "x", "shortened": 5}',
    ],
)  # fmt: skip
def test_a_suite_document_that_is_none_is_named_and_its_cells_stay(tmp_path: Path, text: str) -> None:
    one(tmp_path)
    (tmp_path / "made" / "suite.json").write_text(text)
    results = read_results(tmp_path)
    if text != '{"name": "x", "measure": []}':  # an empty table after all
        assert [path.name for path, _ in results.damaged] == ["suite.json"]
        assert results.suites == {}
        assert set(results.cells["suite"]) == {"made"}
    assert len(results.cells) == 3


@pytest.mark.parametrize("text", [None, "", "[]", '{"id": "other"}', '{"id": 3}'])
def test_an_environment_that_is_not_described_is_named_and_its_cells_stay(tmp_path: Path, text: str | None) -> None:
    one(tmp_path)
    path = tmp_path / "made" / "0123456789ab" / "environment.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    results = read_results(tmp_path)
    assert [place for place, _ in results.damaged] == [path]
    assert results.environments == {"0123456789ab": {"id": "0123456789ab"}}
    assert len(results.cells) == 3


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz")
    one(out)
    return out


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_byte_is_raised_or_believed(parts: Path, kind: str, data: st.DataObject) -> None:
    """A byte changed anywhere: named, or in a place that changes nothing that is read."""
    path = parts / "made" / "0123456789ab" / kind / f"{KEY}.parquet"
    whole = path.read_bytes()
    reference = read_results(parts)
    try:
        position = data.draw(st.integers(0, len(whole) - 1))
        byte = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(position + 1, len(whole))) if data.draw(st.booleans()) else None
        path.write_bytes((whole[:position] + bytes([byte]) + whole[position + 1 :])[:cut])
        results = read_results(parts)
        if results.damaged:
            assert path in {place for place, _ in results.damaged}
            assert KEY not in set(results.cells["key"])
        else:
            for name in ("cells", "epochs", "steps"):
                assert getattr(results, name).equals(getattr(reference, name))
        assert len(results.cells) >= 2
    finally:
        path.write_bytes(whole)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), tail=st.booleans())
def test_no_bytes_are_raised(parts: Path, content: bytes, tail: bool) -> None:
    path = parts / "made" / "0123456789ab" / "cells" / "ffffffffffff.parquet"
    try:
        path.write_bytes(b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1" if tail else content)
        results = read_results(parts)
        assert path in {place for place, _ in results.damaged}
        assert len(results.cells) == 3
    finally:
        path.unlink()


def test_merged_files_count_but_for_what_was_measured_again(tmp_path: Path) -> None:
    """One file a table, compressed, in the environment's folder: what compaction leaves."""
    folder = one(tmp_path).parent.parent
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


def test_no_path_or_host_stands_in_the_files(tmp_path: Path) -> None:
    folder = one(tmp_path).parent.parent
    for path in folder.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes()
            assert os.uname().nodename.encode() not in path.read_bytes() or len(os.uname().nodename) < 5
    assert json.loads((folder / "environment.json").read_text())["id"] == "0123456789ab"


def test_null_columns_keep_their_types(tmp_path: Path) -> None:
    one(tmp_path)
    results = read_results(tmp_path)
    for name in CELLS.names:
        assert results.cells[name].dtype.pyarrow_dtype == CELLS.field(name).type
