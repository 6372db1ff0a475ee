"""Rows of the three tables of results. A column is one field of one of these classes; all else is made from them:
the Arrow schemas, the metrics that claims may ask for, and what tables and comparisons know of a number.

A row is a dictionary: what it lacks is null. Null is missing, NaN is NaN. Instants are UTC. A column may come or go
(``results.schema``); the order of the fields is that of the columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Annotated, Literal, TypedDict, get_args, get_type_hints

from bnpbench.fields import stripped

Table = Literal["cells", "epochs", "steps", "targets"]


@dataclass(frozen=True)
class Metric:
    """What is known of a number that a claim may ask for. Stands on its column's field.

    Attributes:
        unit: of the numbers; empty for a share or a number of something.
        label: its heading in a table that shows it; empty where no table lists it.
        absent: what such a table says in the place of a number that is not known.
        better: whether a higher or a lower one is better; None where neither is.
        timed: measured anew in every epoch: taken over all of them, and its interval over them; else over seeds.
        exact: the same in every run: it has no spread.
        judged: whether a comparison judges it, and then only under one torch or always.
        tabled: has a table of its own, where published figures stand beside it.
        table: where it comes from; ``targets`` for what is asked with an accuracy to reach.
    """

    unit: str = ""
    label: str = ""
    absent: str = "not counted"
    better: Literal["higher", "lower"] | None = None
    timed: bool = False
    exact: bool = False
    judged: Literal["always", "under one torch"] | None = None
    tabled: bool = False
    table: Table | None = None

    @property
    def sign(self) -> int:
        """1 where a higher number is the better one, -1 elsewhere: times this, more is better."""
        return 1 if self.better == "higher" else -1


NEEDED = "needed"
"""Marks a column without which a table that has it is nothing. In a part of another version each of the others may be
missing, and is null; whether one is null in rows of this version says its type."""

COUNTER_SECONDS = {"cuda": 0.1, "cpu": 0.001}
"""Device → seconds after which its counter of joules has moved at the latest: NVML's (every 20 to 100 ms), RAPL's."""
LEAST_TICKS = 10  # of that counter in an epoch, for its joules to be known: one more or less is then a tenth
LEAST_BLOCK_SECONDS = 0.4  # of a block, for what other processes used of its cores to be known

_ACCURACY = Metric(better="higher")
_LOSS = Metric(better="lower")
_SECONDS = Metric("s", better="lower", timed=True)
_ONCE = Metric("s", better="lower")
_FLOPS = Metric("FLOP", better="lower", exact=True, judged="always")


class EpochRow(TypedDict, total=False):
    """An epoch of a cell."""

    key: Annotated[str, NEEDED]
    block: str
    turn: int | None
    epoch: Annotated[int, NEEDED]  # from 1
    train_loss: Annotated[float, _LOSS]  # mean over the epoch's examples of the losses before each update
    train_accuracy: Annotated[float, _ACCURACY]
    validation_accuracy: Annotated[float | None, _ACCURACY]
    test_loss: Annotated[float, _LOSS]
    test_bits_per_token: Annotated[
        float | None, Metric("bit", better="lower")
    ]  # of text; the loss by another logarithm
    test_accuracy: Annotated[float, replace(_ACCURACY, tabled=True)]
    metrics: str | None  # the numbers of the suite's own metrics by their names, a JSON object (``own_numbers``)
    learning_rate: Annotated[float, Metric()]
    steps: Annotated[int, Metric()]
    examples: Annotated[int, Metric()]
    train_seconds: Annotated[float, replace(_SECONDS, tabled=True)]
    evaluation_seconds: Annotated[float, _SECONDS]
    other_seconds: Annotated[float, _SECONDS]
    step_seconds_median: Annotated[float | None, _SECONDS]
    step_seconds_p90: Annotated[float | None, _SECONDS]
    refresh_seconds_median: Annotated[float | None, _SECONDS]  # of the steps that refresh what the method keeps
    energy_joules: Annotated[float | None, Metric("J", better="lower", timed=True)]
    outlier: bool


class CellRow(TypedDict, total=False):
    """A cell, whatever became of it."""

    key: Annotated[str, NEEDED]
    label: str
    block: str
    role: str  # trial, final
    settings: Annotated[str, NEEDED]  # canonical JSON; its SHA-256 begins with the key
    method: str
    network: str
    dataset: str
    batch_size: int
    engine: str
    device: str
    devices: int
    seed: int
    threads: int
    precision: str
    status: Annotated[str, NEEDED]
    message: str | None
    log: str | None
    parameters: Annotated[int | None, Metric(exact=True, judged="always")]
    flops_model: Annotated[int | None, replace(_FLOPS, label="model")]
    flops_method_predicted: Annotated[int | None, replace(_FLOPS, label="method, predicted", absent="no formula")]
    flops_method_counted: Annotated[int | None, replace(_FLOPS, label="method, counted")]
    flops_method_executed: Annotated[int | None, replace(_FLOPS, label="method, executed", judged="under one torch")]
    flops_method_products: Annotated[int | None, replace(_FLOPS, label="products of these", judged=None)]
    flops_refresh: Annotated[int | None, replace(_FLOPS, judged="under one torch")]
    bytes_per_step: Annotated[int | None, Metric("B", better="lower", exact=True)]
    operators_per_step: Annotated[
        int | None, Metric(label="operators", better="lower", exact=True, judged="under one torch")
    ]  # aten, any device
    kernels_per_step: Annotated[
        int | None, Metric(label="kernels", better="lower", exact=True, judged="under one torch")
    ]  # CUDA
    method_state_bytes: Annotated[int | None, Metric("B", better="lower", exact=True)]  # of what changes the gradients
    optimizer_state_bytes: Annotated[int | None, Metric("B", better="lower", exact=True)]  # of what updates the weights
    bnp_form: str | None
    sites: str | None  # of a network of others, a line each
    sites_served: Annotated[int | None, Metric(exact=True)]
    bnp_layers: Annotated[int | None, Metric(exact=True)]
    bnp_parameters: Annotated[int | None, Metric(exact=True)]
    bnp_skipped: str | None  # name and reason, a line each
    optimizer_parts: str | None  # name, parameters, weight decay, a line each
    peak_memory_bytes: Annotated[int | None, Metric("B", better="lower")]  # CUDA: of the steps alone
    graph_memory_bytes: Annotated[int | None, Metric("B", better="lower")]  # and what a CUDA graph keeps beside it
    energy_joules: Annotated[float | None, Metric("J", better="lower")]  # of all epochs; a claim means that of one
    setup_seconds: Annotated[float | None, _ONCE]
    warmup_seconds: Annotated[float | None, _ONCE]
    compile_seconds: Annotated[float | None, _ONCE]
    wall_seconds: Annotated[float | None, _ONCE]
    stopped_by: str | None
    engine_active: str | None
    cache_hits: Annotated[int | None, Metric()]
    cache_misses: Annotated[int | None, Metric()]
    train_examples: Annotated[int | None, Metric(exact=True)]
    last_batch: Annotated[int | None, Metric(exact=True)]
    test_examples: Annotated[int | None, Metric(exact=True)]
    clock_mhz_before: Annotated[float | None, Metric("MHz")]
    clock_mhz_after: Annotated[float | None, Metric("MHz")]
    throttled: bool | None
    bnpbench: str | None
    torch: str | None
    commit: str | None
    dirty: bool | None
    jobs: int | None  # blocks that its machine measures at a time
    other_cores: Annotated[float | None, Metric()]  # that other processes used, on average over its epochs
    worker: str | None
    started: datetime | None
    finished: datetime


class StepRow(TypedDict, total=False):
    """What a probe found in one step with one preconditioner; see ``measure.conditioning``."""

    key: Annotated[str, NEEDED]
    epoch: Annotated[int, NEEDED]
    step: Annotated[int, NEEDED]
    layer: str
    neuron: int
    preconditioner: str  # batch, batch_damped, running_damped
    kappa_hessian: Annotated[float | None, Metric(label="κ of the Hessian")]
    kappa_preconditioned: Annotated[float | None, Metric(label="preconditioned")]
    kappa_gain: Annotated[float | None, Metric(label="gain")]
    kappa_d: Annotated[float | None, Metric(label="κ(D)")]
    gain_over_kappa_d_squared: Annotated[float | None, Metric(label="gain / κ(D)²")]
    rank: Annotated[int, Metric(label="rank")]
    gap: Annotated[float, Metric()]
    live_features: Annotated[int, Metric(label="live features")]
    live_rows: Annotated[int, Metric()]


ROWS: dict[Table, type] = {"cells": CellRow, "epochs": EpochRow, "steps": StepRow}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        type: of its values: str, int, float, bool or datetime.
        needed: whether it has the mark.
        metric: what is known of its numbers where a claim may ask for them.
    """

    type: type
    needed: bool
    metric: Metric | None


@cache
def columns(row: type) -> dict[str, Column]:
    """Name → column, in their order, of a class of rows."""
    return {name: _column(hint) for name, hint in get_type_hints(row, include_extras=True).items()}


def _column(hint: object) -> Column:
    notes, bare = getattr(hint, "__metadata__", ()), stripped(hint)
    kind = next(kind for kind in get_args(bare) or (bare,) if kind is not NoneType)
    metric = next((note for note in notes if isinstance(note, Metric)), None)
    return Column(kind, NEEDED in notes, metric)


_TARGETS = {
    "seconds_to": Metric("s", better="lower"),
    "epochs_to": Metric(better="lower"),
    "steps_to": Metric(better="lower"),
    "reached": Metric(better="higher"),
}
METRICS: dict[str, Metric] = {name: replace(metric, table="targets") for name, metric in _TARGETS.items()} | {
    name: replace(column.metric, table=table)
    for table, row in ROWS.items()
    for name, column in columns(row).items()
    if column.metric
}
"""All that a claim may ask for, by name."""

GAIN = "test_accuracy"
"""What a method buys, where a suite does not say otherwise."""


_OWN: dict[str, Metric] = {
    "score": Metric(better="higher", table="epochs"),
    "error": Metric(better="lower", table="epochs"),
}
"""What is known of the metrics that a suite brings along, by what their names begin with."""
OWN_PATTERN = rf"({'|'.join(_OWN)})\.[A-Za-z0-9_+-]{{1,64}}"


def metric(name: str) -> Metric:
    """What is known of a metric; nothing of a name that is none's, as a file of another version may hold."""
    return METRICS.get(name) or _OWN.get(name.partition(".")[0] if is_own(name) else "", Metric())


def own_metric(name: str, better: Literal["higher", "lower"]) -> str:
    """How a metric that a suite brings along is called: its name, and before it which way it is better."""
    return f"{next(word for word, metric in _OWN.items() if metric.better == better)}.{name}"


def is_own(name: str) -> bool:
    """Whether this may be the name of a metric that a suite brings along."""
    return re.fullmatch(OWN_PATTERN, name) is not None


def own_text(numbers: Mapping[str, float]) -> str | None:
    """Numbers of such metrics as the text of their column; None of none."""
    return json.dumps(dict(numbers)) if numbers else None


def own_numbers(text: object) -> dict[str, float]:
    """Their numbers in a row's text; nothing of a text that is none of ours."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    numbers = found.items() if isinstance(found, dict) else ()
    return {name: number for name, number in numbers if is_own(name) and isinstance(number, float)}


def spoken(name: str) -> str:
    """A metric's name in a heading."""
    return name.replace("_", " ").replace(".", " ", 1)


def gains() -> tuple[str, ...]:
    """Those that may say what a method buys, beside a suite's own: of an epoch, with a better side, and no times."""
    return tuple(name for name, metric in metrics("epochs").items() if metric.better and not metric.timed)


def metrics(table: Table) -> dict[str, Metric]:
    """Those of one table, in the order of its columns."""
    return {name: metric for name, metric in METRICS.items() if metric.table == table}
