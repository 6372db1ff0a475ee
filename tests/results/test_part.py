"""A file of results: what is damaged, foreign or hostile is named, and nothing of it is raised."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bnpbench.results import compact, read_results
from bnpbench.results.schema import CELLS, EPOCHS, STEPS
from tests.support.parts import KEY, block, column, hashed, reasons, rewrite, store, three


@pytest.mark.parametrize("version", ["0", "2", "one", None])
def test_another_schema_version_is_named(tmp_path: Path, version: str | None) -> None:
    path = three(tmp_path)
    metadata = {**pq.read_metadata(path).metadata, b"schema_version": version or ""}
    if version is None:
        del metadata[b"schema_version"]
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)
    assert "schema_version" in reasons(read_results(tmp_path))[path.name]


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"\x00" * 5000, b"{}"])
def test_a_part_that_is_no_parquet_is_named(tmp_path: Path, kind: str, content: bytes) -> None:
    path = three(tmp_path).parent.parent / kind / f"{KEY}.parquet"
    path.write_bytes(content)
    results = read_results(tmp_path)
    assert "not readable as Parquet" in next(reason for place, reason in results.damaged if place == path)
    assert KEY not in set(results.cells["key"])


def test_what_is_not_a_plain_file_is_not_opened(tmp_path: Path) -> None:
    path = three(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    os.mkfifo(path.with_name("000000000000.parquet"))
    path.with_name("000000000001.parquet").mkdir()
    assert set(reasons(read_results(tmp_path)).values()) == {"not a regular file"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz")
    three(out)
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


# --- what a file may claim ----------------------------------------------------------------------------------------


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
    path = three(tmp_path).parent.parent / "epochs" / f"{KEY}.parquet"
    big(path, epochs_of(rows, **{name: made() for name, made in columns.items()}), compression)
    results = read_results(tmp_path)
    (found,) = [text for place, text in results.damaged if place == path]
    assert reason in found


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@pytest.mark.parametrize("bomb", ["rows", "texts", "pages"])
def test_a_small_merged_file_that_unpacks_to_gigabytes_is_named_before_it_is_read(
    tmp_path: Path, kind: str, bomb: str
) -> None:
    folder = three(tmp_path).parent.parent
    compact(tmp_path)
    store(tmp_path).write_block(*block(4))
    rows = {"rows": 4_000_000, "texts": 100_000, "pages": 1}[bomb]
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
    path = three(tmp_path).parent.parent / kind / f"{KEY}.parquet"
    if merged:
        compact(tmp_path)
        path = path.parent.with_suffix(".parquet")
    rewrite(path, column(name, value))
    results = read_results(tmp_path)
    assert f"{name} {value}" in dict(results.damaged)[path]
    assert KEY not in set(results.cells["key"])


def test_a_long_honest_part_is_read(tmp_path: Path) -> None:
    cells, _, _ = block(1)
    steps = [{"epoch": 1, "step": n, "layer": "fc.1", "preconditioner": "batch", "kappa_d": 1.0} for n in range(60_000)]
    store(tmp_path).write_block(cells, {}, {KEY: steps})
    results = read_results(tmp_path)
    assert (len(results.steps), results.damaged) == (60_000, [])
    assert set(results.steps["layer"]) == {"fc.1"}
