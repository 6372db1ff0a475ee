"""The three tables of results as Arrow schemas: every column nullable, units in the names.

Null is missing, NaN is NaN. ``settings`` holds the canonical JSON text whose SHA-256 begins with the cell's
key. Instants are UTC.

Results outlive the code. A column may come or go: it is null in the parts that lack it, and left out of those that
have it still. Where a column's meaning changes, ``SCHEMA_VERSION`` rises and ``UPGRADES`` says how to read older parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
NEEDED = frozenset({"key", "settings", "status", "epoch", "step"})  # a table that has them is nothing without them

FINISHED = frozenset({"ok", "diverged", "not-applicable"})  # the next run leaves these alone
STATUSES = FINISHED | {"oom", "timeout", "crashed", "interrupted", "error"}

_STRING, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INSTANT = pa.timestamp("us", tz="UTC")


def digest(names: Iterable[str]) -> str:
    """Of a part's columns, kept in its footer: nothing else in a part would tell that a name there was altered."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def _schema(**columns: pa.DataType) -> pa.Schema:
    metadata = {"schema_version": str(SCHEMA_VERSION), "columns": digest(columns)}
    return pa.schema(list(columns.items()), metadata=metadata)


EPOCHS = _schema(
    key=_STRING,
    block=_STRING,
    turn=_INT,
    epoch=_INT,  # from 1
    train_loss=_FLOAT,  # mean over the epoch's examples of the batch losses before each update
    train_accuracy=_FLOAT,
    validation_accuracy=_FLOAT,
    test_loss=_FLOAT,
    test_accuracy=_FLOAT,
    learning_rate=_FLOAT,
    steps=_INT,
    examples=_INT,
    train_seconds=_FLOAT,
    evaluation_seconds=_FLOAT,
    other_seconds=_FLOAT,
    step_seconds_median=_FLOAT,
    step_seconds_p90=_FLOAT,
    energy_joules=_FLOAT,
    outlier=_BOOL,
)

CELLS = _schema(
    key=_STRING,
    label=_STRING,
    block=_STRING,
    role=_STRING,  # trial, final
    settings=_STRING,  # canonical JSON; its SHA-256 begins with the key
    method=_STRING,
    network=_STRING,
    dataset=_STRING,
    batch_size=_INT,
    engine=_STRING,
    device=_STRING,
    devices=_INT,
    seed=_INT,
    threads=_INT,
    precision=_STRING,
    status=_STRING,
    message=_STRING,
    log=_STRING,
    parameters=_INT,
    flops_model=_INT,
    flops_method_predicted=_INT,
    flops_method_counted=_INT,
    flops_method_executed=_INT,
    flops_method_products=_INT,  # of the counted and the executed ones
    bytes_per_step=_INT,
    operators_per_step=_INT,  # aten, any device
    kernels_per_step=_INT,  # CUDA
    bnp_form=_STRING,
    peak_memory_bytes=_INT,
    energy_joules=_FLOAT,
    setup_seconds=_FLOAT,
    warmup_seconds=_FLOAT,
    compile_seconds=_FLOAT,
    wall_seconds=_FLOAT,
    stopped_by=_STRING,
    engine_active=_STRING,
    cache_hits=_INT,
    cache_misses=_INT,
    train_examples=_INT,
    last_batch=_INT,
    clock_mhz_before=_FLOAT,
    clock_mhz_after=_FLOAT,
    throttled=_BOOL,
    bnpbench=_STRING,
    torch=_STRING,
    commit=_STRING,
    dirty=_BOOL,
    worker=_STRING,
    started=_INSTANT,
    finished=_INSTANT,
)

STEPS = _schema(
    key=_STRING,
    epoch=_INT,
    step=_INT,
    layer=_STRING,
    neuron=_INT,
    preconditioner=_STRING,  # batch, batch_damped, running_damped
    kappa_hessian=_FLOAT,
    kappa_preconditioned=_FLOAT,
    kappa_gain=_FLOAT,
    kappa_d=_FLOAT,
    gain_over_kappa_d_squared=_FLOAT,
    rank=_INT,
    gap=_FLOAT,
    live_features=_INT,
    live_rows=_INT,
)

SCHEMAS = {"cells": CELLS, "epochs": EPOCHS, "steps": STEPS}


@dataclass(frozen=True)
class Upgrade:
    """How parts of one ``schema_version`` become parts of the next.

    Attributes:
        schemas: ``cells``, ``epochs`` and ``steps`` to the columns that the earlier version had; those of a part are
            checked against them, and the ones that it lacks are null.
        change: takes which of the three, and a table with these columns; gives one with the meaning of the next
            version, where columns may come and go as always.
    """

    schemas: Mapping[str, pa.Schema]
    change: Callable[[str, pa.Table], pa.Table]


UPGRADES: dict[int, Upgrade] = {}
"""By the version that is read. Each stays for good, with a part of its version among the tests' files."""


def schema_of(kind: str, version: int) -> pa.Schema:
    """The columns that a table had in a version. Raises KeyError where that is not read."""
    return SCHEMAS[kind] if version == SCHEMA_VERSION else UPGRADES[version].schemas[kind]


def upgraded(kind: str, table: pa.Table, version: int) -> pa.Table:
    """A table of some version, with columns of that version alone, as the present one has it."""
    for earlier in range(version, SCHEMA_VERSION):
        whole = _filled(table, UPGRADES[earlier].schemas[kind])
        table = UPGRADES[earlier].change(kind, whole)
    return _filled(table, SCHEMAS[kind])


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the columns of the schema, in its order; null where the table has none."""
    nothing = {field.name: pa.nulls(len(table), field.type) for field in schema if field.name not in table.schema.names}
    columns = [nothing[name] if name in nothing else table.column(name) for name in schema.names]
    return pa.table(columns, schema=schema.remove_metadata())
