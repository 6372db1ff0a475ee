"""The three tables of results as Arrow schemas: every column nullable, units in the names.

Null is missing, NaN is NaN. ``settings`` holds the canonical JSON text whose SHA-256 begins with the cell's
key. Instants are UTC.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1
LATER = frozenset({"flops_method_products"})  # columns that the first parts of this version were written without

FINISHED = frozenset({"ok", "diverged", "not-applicable"})  # the next run leaves these alone
STATUSES = FINISHED | {"oom", "timeout", "crashed", "interrupted", "error"}

_STRING, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INSTANT = pa.timestamp("us", tz="UTC")


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()), metadata={"schema_version": str(SCHEMA_VERSION)})


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
