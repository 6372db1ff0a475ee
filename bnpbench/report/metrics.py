"""One number of one cell: a column of cells, of epochs at a moment, of steps, or what a target took."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from bnpbench.report.view import Cell, View
from bnpbench.results import CELLS, EPOCHS, STEPS, told

TIMES = frozenset(
    {"train_seconds", "evaluation_seconds", "other_seconds", "step_seconds_median", "step_seconds_p90", "energy_joules"}
)  # measured anew in every epoch: bootstrapped over epochs, where the others are answered by seeds
TARGETS = frozenset({"seconds_to", "epochs_to", "reached"})
COUNTS = frozenset(field.name for field in CELLS if str(field.type) == "int64") - {
    "peak_memory_bytes",
    "cache_hits",
    "cache_misses",
}  # the same in every run: they have no spread
PRECONDITIONER = "batch"  # of the steps' three, the paper's own (section 5.1): undamped, of the batch

At = str | Mapping[str, Any]


class NoDataError(Exception):
    """There is no number, for the reason given."""


def value(view: View, cell: Cell, metric: str, at: At = "last", target: float | None = None) -> float:
    """The number, which may be infinite where a target is never reached.

    Args:
        view: where the cell was measured.
        cell: one of its cells.
        metric: a numeric column, or ``seconds_to``, ``epochs_to``, ``reached``.
        at: ``last``, ``best``, ``area`` (mean over all epochs), ``{"epoch": 5}`` or ``{"epochs": [1, 3]}`` (mean).
        target: test accuracy, for the last three.

    Raises:
        NoDataError: not measured, not finished, or not a number.
    """
    if metric in TARGETS:
        return _target(view, cell, metric, target)
    require_ok(cell)
    found: float | None
    if metric in EPOCHS.names:
        found = _at(view.series(cell, metric), metric, at)
    elif metric in CELLS.names:
        found = cell.row.get(metric)
    elif metric in STEPS.names:
        found = _over_steps(view, cell, metric)
    else:
        raise NoDataError(f"no column is called {metric}")
    if found is None:
        raise NoDataError(f"no {metric}")
    if math.isnan(found):
        raise NoDataError(f"{metric} is not a number")
    return float(found)


def times(view: View, cell: Cell, metric: str, at: At = "all") -> Mapping[int, float]:
    """Epoch to time, of the epochs that ``at`` picks. Raises NoDataError where there is none."""
    require_ok(cell)
    series = view.times(cell, metric)
    if not series:
        raise NoDataError(f"no {metric}")
    if at in ("all", "area"):
        return series
    if at in ("last", "best"):
        epoch = max(series) if at == "last" else min(series, key=lambda epoch: (series[epoch], epoch))
        return {epoch: series[epoch]}
    return _within(series, metric, at)


def default_at(metric: str) -> str:
    """Where a metric is looked at unless a suite says otherwise: times over all epochs, the others at the last."""
    return "all" if metric in TIMES else "last"


def best_epoch(series: Mapping[int, float], metric: str) -> int:
    """The first epoch with the highest accuracy, or the lowest of anything else."""
    best = max(series.values()) if metric.endswith("accuracy") else min(series.values())
    return min(epoch for epoch, value in series.items() if value == best)


def require_ok(cell: Cell) -> None:
    """Raises NoDataError unless the cell was measured to its end."""
    if not cell.ok:
        raise NoDataError(cell.status)


def describe_at(at: At) -> str:
    """``epoch 5``, ``epochs 1 to 3``, ``the last epoch``; as it is where a file holds something else."""
    match at:
        case {"epoch": epoch}:
            return f"epoch {epoch}"
        case {"epochs": [first, last]}:
            return f"epochs {first} to {last}"
        case "last" | "best":
            return f"the {at} epoch"
        case "area" | "all":
            return "all epochs"
    return told(at)


def _at(series: Mapping[int, float], metric: str, at: At) -> float:
    if not series:
        raise NoDataError(f"no {metric}")
    if at == "last":
        return series[max(series)]
    if at == "best":
        numbers = {epoch: number for epoch, number in series.items() if not math.isnan(number)}
        if not numbers:
            raise NoDataError(f"{metric} is not a number")
        return numbers[best_epoch(numbers, metric)]
    if at in ("area", "all"):
        return sum(series.values()) / len(series)
    picked = _within(series, metric, at)
    first, last = _bounds(at)
    if len(picked) < last - first + 1:
        raise NoDataError(f"{metric} of {len(picked)} of {describe_at(at)}")
    return sum(picked.values()) / len(picked)


def _within(series: Mapping[int, float], metric: str, at: At) -> Mapping[int, float]:
    first, last = _bounds(at)
    if not (picked := {epoch: number for epoch, number in series.items() if first <= epoch <= last}):
        raise NoDataError(f"no {metric} at {describe_at(at)}")
    return picked


def _bounds(at: At) -> tuple[int, int]:
    """The first and the last epoch of a table; NoDataError where a file holds something else."""
    match at:
        case {"epoch": int(epoch)}:
            return epoch, epoch
        case {"epochs": [int(first), int(last)]} if first <= last:
            return first, last
    raise NoDataError(f"at = {told(at)} picks no epoch")


def _over_steps(view: View, cell: Cell, metric: str) -> float | None:
    kinds = view.steps.of(cell.key, "preconditioner")
    several = len(set(kinds)) > 1
    numbers = [
        float(number)
        for number, kind in zip(view.steps.of(cell.key, metric), kinds, strict=True)
        if number is not None and not (several and kind != PRECONDITIONER)
    ]
    return statistics.median(numbers) if numbers and not any(map(math.isnan, numbers)) else None


def _target(view: View, cell: Cell, metric: str, target: float | None) -> float:
    if metric == "reached" and cell.status in ("diverged", "not-applicable"):
        return 0.0
    require_ok(cell)
    if target is None or not view.series(cell, "test_accuracy"):
        raise NoDataError("no test_accuracy")
    first = view.first_epoch(cell, target)
    if metric == "reached":
        return float(first is not None)
    if first is None:
        return math.inf
    if metric == "epochs_to":
        return float(first)
    series = view.series(cell, "train_seconds")
    seconds = [series.get(epoch, math.nan) for epoch in range(1, first + 1)]
    if not math.isfinite(total := sum(seconds)):
        missing = next((epoch for epoch, s in enumerate(seconds, 1) if not math.isfinite(s)), first)
        raise NoDataError(f"no train_seconds of epoch {missing}")
    return total
