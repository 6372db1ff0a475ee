"""Results outlive the code: columns come and go, and meanings change by a step of the version.

``kept/`` holds parts as version 1 wrote them at first, before a footer named its columns.
"""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bnpbench.results import Results, read_results, schema
from bnpbench.results.schema import CELLS, EPOCHS, STEPS, digest
from tests.support.parts import block, hashed, rewritten, store, three, written

KEPT = Path(__file__).parent / "kept"
KEY = "880aa1bc5cea"
FOLDER = Path("hessian") / "d5e02d0a4987"
TABLES = ("cells", "epochs", "steps")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return shutil.copytree(KEPT, tmp_path / "kept")


def part_of(out: Path, kind: str) -> Path:
    return out / FOLDER / kind / f"{KEY}.parquet"


def same(one: Results, other: Results, *without: str) -> bool:
    """Whether all tables are equal but for some columns."""
    for kind in TABLES:
        left, right = (getattr(results, kind) for results in (one, other))
        columns = [name for name in left.columns if name not in without]
        if not left[columns].equals(right[columns]):
            return False
    return True


def test_parts_of_the_first_code_are_read() -> None:
    results = read_results(KEPT)
    assert (results.damaged, results.unknown) == ([], ())
    assert (len(results.cells), len(results.epochs), len(results.steps)) == (1, 3, 90)
    assert results.epochs["test_accuracy"].notna().all()
    assert results.steps["kappa_hessian"].notna().any()
    for kind in TABLES:
        metadata = pq.read_metadata(part_of(KEPT, kind)).metadata
        assert (metadata[b"schema_version"], b"columns" in metadata) == (b"1", False)


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_was_added_since_is_null(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_results(KEPT)
    for place in (0, 5, len(schema.SCHEMAS[kind])):
        added = schema.SCHEMAS[kind].insert(place, pa.field(f"colour{place}", pa.string()))
        monkeypatch.setitem(schema.SCHEMAS, kind, added)
    after = read_results(KEPT)
    assert (after.damaged, after.unknown) == ([], ())
    assert same(before, after)
    table = getattr(after, kind)
    assert all(table[name].isna().all() for name in table.columns if name.startswith("colour"))
    assert table.columns[2] == "colour0"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cells", "seed"), ("epochs", "test_accuracy"), ("steps", "gap"), ("cells", "label"), ("epochs", "outlier")],
)
def test_a_column_that_was_removed_since_is_left_out_and_named(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, columns = read_results(KEPT), schema.SCHEMAS[kind]
    monkeypatch.setitem(schema.SCHEMAS, kind, columns.remove(columns.get_field_index(name)))
    after = read_results(KEPT)
    assert (after.damaged, after.unknown) == ([], (f"{kind}.{name}",))
    assert name not in getattr(after, kind).columns
    assert same(after, before)
    assert after.of_suites(["hessian"]).unknown == after.unknown


@pytest.mark.parametrize("kind", TABLES)
def test_parts_of_other_code_are_read_beside_ours(kind: str, tmp_path: Path) -> None:
    folder = written(tmp_path, [block(1, 2, steps=1), block(3, steps=1)]).folder
    nullable = {"cells": "seed", "epochs": "train_loss", "steps": "rank"}[kind]
    rewritten(
        folder / kind / f"{hashed(1)[0]}.parquet",
        lambda table: table.drop_columns([nullable]).append_column("colour", pa.array(["red"] * len(table))),
    )
    results = read_results(tmp_path)
    assert (results.damaged, results.unknown) == ([], (f"{kind}.colour",))
    assert (len(results.cells), len(results.epochs), len(results.steps)) == (3, 6, 3)
    assert store(tmp_path).finished(block(1, 2)[0][0]["block"], dict(hashed(number) for number in (1, 2)))


def test_columns_that_are_not_known_are_not_read(tmp_path: Path) -> None:
    """Whatever a stranger writes into them."""
    rows = 20_000
    made = written(tmp_path, [block(1, epochs=rows)])
    text = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), ["x" * 20_000])
    nested = pa.array([[[{"key": "another"}]]] * rows)
    rewritten(
        made.folder / "epochs" / f"{hashed(1)[0]}.parquet",
        lambda table: table.append_column("text", text).append_column("key.key", nested),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = read_results(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB
    assert (results.damaged, results.unknown) == ([], ("epochs.key.key", "epochs.text"))
    assert len(results.epochs) == rows


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, columns in zip(TABLES, (CELLS, EPOCHS, STEPS), strict=True) for name in columns.names
     if name in schema.NEEDED],
)  # fmt: skip
def test_a_part_without_a_column_that_it_is_nothing_without_is_damaged(kind: str, name: str, kept: Path) -> None:
    rewritten(part_of(kept, kind), lambda table: table.drop_columns([name]))
    results = read_results(kept)
    assert dict(results.damaged)[part_of(kept, kind)] == f"it has no column {name}"
    assert results.cells.empty


def test_a_name_that_was_altered_is_damage(tmp_path: Path) -> None:
    """Of a part that says which columns it was written with, as they all do by now."""
    path = written(tmp_path, [block(1)]).folder / "cells" / f"{hashed(1)[0]}.parquet"
    path.write_bytes(path.read_bytes().replace(b"\x04seed", b"\x04seeb"))
    assert "seeb" in pq.read_schema(path).names
    assert dict(read_results(tmp_path).damaged)[path] == "its columns are not those that it was written with"


def in_milliseconds(table: pa.Table) -> pa.Table:
    """As an imagined version wrote it, which held seconds to be too coarse."""
    place = table.column_names.index("train_seconds")
    return table.set_column(place, "train_milliseconds", pc.multiply(table.column("train_seconds"), 1000.0))


def in_seconds(kind: str, table: pa.Table) -> pa.Table:
    if kind != "epochs":
        return table
    seconds = pc.divide(table.column("train_milliseconds"), 1000.0)
    return table.append_column("train_seconds", seconds).drop_columns(["train_milliseconds"])


def test_an_earlier_version_is_upgraded_step_by_step(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_results(kept)
    for kind in TABLES:
        rewritten(
            part_of(kept, kind), in_milliseconds if kind == "epochs" else lambda table: table, schema_version="-1"
        )
    rewritten(part_of(kept, "epochs"), lambda table: table.drop_columns(["outlier"]).append_column("x", table["epoch"]))
    assert "schema_version -1, this bnpbench reads 1" in dict(read_results(kept).damaged)[part_of(kept, "cells")]
    old = EPOCHS.set(EPOCHS.get_field_index("train_seconds"), pa.field("train_milliseconds", pa.float64()))
    schemas = schema.SCHEMAS | {"epochs": old}
    monkeypatch.setitem(schema.UPGRADES, -1, schema.Upgrade(schemas, lambda kind, table: table))
    monkeypatch.setitem(schema.UPGRADES, 0, schema.Upgrade(schemas, in_seconds))
    after = read_results(kept)
    assert (after.damaged, after.unknown) == ([], ("epochs.x",))
    assert same(before, after, "train_seconds", "outlier")
    assert after.epochs["train_seconds"].tolist() == pytest.approx(before.epochs["train_seconds"].tolist())
    assert after.epochs["outlier"].isna().all()


def test_an_upgrade_that_fails_names_the_part(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in TABLES:
        rewritten(part_of(kept, kind), lambda table: table, schema_version="0")
    monkeypatch.setitem(schema.UPGRADES, 0, schema.Upgrade(schema.SCHEMAS, in_seconds))
    assert "train_milliseconds" in dict(read_results(kept).damaged)[part_of(kept, "epochs")]


ELSEWHERE = {
    "cells.sites": "a network of others",
    "cells.sites_served": "a network of others",
    "cells.bnp_layers": "any run with BNP since it is recorded",
    "cells.bnp_parameters": "any run with BNP since it is recorded",
    "cells.bnp_skipped": "any run with BNP since it is recorded",
    "cells.flops_refresh": "a method that refreshes what it keeps",
    "cells.method_state_bytes": "any run with a preconditioner since it is recorded",
    "cells.optimizer_state_bytes": "any run since it is recorded",
    "cells.optimizer_parts": "any run since it is recorded",
    "cells.graph_memory_bytes": "of a CUDA graph",
    "cells.kernels_per_step": "CUDA",
    "cells.test_examples": "any run since it is recorded",
    "cells.jobs": "any run since it is recorded",
    "cells.other_cores": "any run since it is recorded",
    "cells.throttled": "CUDA",
    "cells.energy_joules": "a machine that counts its energy",
    "epochs.energy_joules": "a machine that counts its energy",
    "epochs.test_bits_per_token": "text",
    "epochs.refresh_seconds_median": "a method that refreshes what it keeps",
    "epochs.metrics": "a suite with metrics",
    "epochs.validation_accuracy": "validation data",
    "cells.worker": "a cluster",
}
"""Columns that the kept runs of four suites on a CPU have no value of, and what fills them."""


def test_every_column_is_filled_by_something() -> None:
    results = read_results(*(Path(__file__).parents[1] / "unchanged" / "measured" / name for name in
                             ("quick", "timing", "hessian", "regression")))  # fmt: skip
    tables = {kind: getattr(results, kind) for kind in TABLES}
    empty = {f"{kind}.{name}" for kind, table in tables.items() for name in table if table[name].isna().all()}
    assert empty == set(ELSEWHERE)


def test_null_columns_keep_their_types(tmp_path: Path) -> None:
    three(tmp_path)
    results = read_results(tmp_path)
    for name in CELLS.names:
        assert results.cells[name].dtype.pyarrow_dtype == CELLS.field(name).type


def test_the_schemas_have_the_documented_columns() -> None:
    assert " ".join(EPOCHS.names) == (
        "key block turn epoch train_loss train_accuracy validation_accuracy test_loss test_bits_per_token "
        "test_accuracy metrics learning_rate steps examples train_seconds evaluation_seconds other_seconds "
        "step_seconds_median step_seconds_p90 refresh_seconds_median energy_joules outlier"
    )
    assert " ".join(CELLS.names) == (
        "key label block role settings method network dataset batch_size engine device devices seed threads precision "
        "status message log parameters flops_model flops_method_predicted flops_method_counted flops_method_executed "
        "flops_method_products "
        "flops_refresh bytes_per_step operators_per_step kernels_per_step method_state_bytes "
        "optimizer_state_bytes "
        "bnp_form sites sites_served bnp_layers bnp_parameters "
        "bnp_skipped optimizer_parts peak_memory_bytes graph_memory_bytes "
        "energy_joules setup_seconds "
        "warmup_seconds compile_seconds wall_seconds stopped_by engine_active cache_hits cache_misses train_examples "
        "last_batch test_examples clock_mhz_before clock_mhz_after throttled bnpbench torch commit dirty jobs "
        "other_cores worker started finished"
    )
    assert " ".join(STEPS.names) == (
        "key epoch step layer neuron preconditioner kappa_hessian kappa_preconditioned kappa_gain kappa_d "
        "gain_over_kappa_d_squared rank gap live_features live_rows"
    )
    for table in (EPOCHS, CELLS, STEPS):
        assert table.metadata == {b"schema_version": b"1", b"columns": digest(table.names).encode()}
        assert all(field.nullable for field in table)
