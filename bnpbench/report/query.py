"""What a report asks of a cell: one number, the times of its epochs, or those of two cells in pairs.

Where there is none, the answer is ``Missing`` with the reason, which tables show in the place of the number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from bnpbench.records.rows import metric as known
from bnpbench.report.data import Cell, Series, View
from bnpbench.report.unknown import why
from bnpbench.statistics.intervals import Estimate
from bnpbench.suite import told

OTHER_CORES = 0.25  # that other processes used on average, from which on seconds are not comparable
INCOMPARABLE = "not comparable"  # how the reason of an estimate without an interval begins
USED = "other processes used the machine"
ALONE = "measure again (--fresh), one block at a time, while the machine does nothing else"  # what helps
PRECONDITIONER = "batch"  # of the steps' three, the paper's own (section 5.1): undamped, of the batch

At = str | Mapping[str, Any]
Pairs = list[list[tuple[float, float]]]  # cell by cell, the times of an epoch of both sides
Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Missing:
    """There is no number, for the reason given. It is false: ``times(...) or {}`` where the reason does not matter."""

    reason: str

    def __bool__(self) -> Literal[False]:
        return False


def value(view: View, cell: Cell, metric: str, at: At = "last", target: float | None = None) -> float | Missing:
    """The number, which may be infinite where a target is never reached.

    Args:
        view: where the cell was measured.
        cell: one of its cells.
        metric: one of ``records.rows.METRICS``.
        at: ``last``, ``best``, ``area`` (mean over all epochs), ``{"epoch": 5}`` or ``{"epochs": [1, 3]}`` (mean).
        target: test accuracy, for the last three.

    Returns:
        Missing where it was not measured, not finished, or is not a number.
    """
    table = known(metric).table
    if table == "targets":
        return _target(view, cell, metric, target)
    if not cell.ok:
        return Missing(cell.status)
    found: object
    if table == "epochs":
        series = view.series(cell, metric)
        found = _at(series, metric, at) if series else None
    elif table == "cells":
        found = cell.row.get(metric)
    elif table == "steps":
        found = _over_steps(view, cell, metric)
    else:
        return Missing(f"no metric is called {metric}")
    if isinstance(found, Missing):
        return found
    if found is None:
        return _lacking(view, cell, metric)
    if not isinstance(found, int | float) or math.isnan(found):
        return Missing(f"{metric} is not a number")
    return float(found)


def times(view: View, cell: Cell, metric: str, at: At = "all") -> Series | Missing:
    """Epoch to time, of the epochs that ``at`` picks."""
    if not cell.ok:
        return Missing(cell.status)
    series = view.times(cell, metric)
    if not series:
        return _lacking(view, cell, metric)
    if at in ("all", "area"):
        return series
    if at in ("last", "best"):
        epoch = max(series) if at == "last" else min(series, key=lambda epoch: (series[epoch], epoch))
        return {epoch: series[epoch]}
    return _within(series, metric, at)


def step_seconds(view: View, cell: Cell) -> Series:
    """Epoch to seconds of training over steps; where steps are not known, to the median step. Empty where unknown."""
    seconds = times(view, cell, "train_seconds")
    if isinstance(seconds, Missing):
        return {}
    steps = view.series(cell, "steps")
    found: Series = {epoch: s / steps[epoch] for epoch, s in seconds.items() if steps.get(epoch)}
    found = found or times(view, cell, "step_seconds_median") or {}
    return {epoch: s for epoch, s in found.items() if s > 0}


def beside(cells: Sequence[Cell], base: Sequence[Cell]) -> dict[str, tuple[Cell, Cell]]:
    """Seed to the two cells of it, of those that were measured to their end."""
    others = {cell.seed: cell for cell in base if cell.ok}
    return {str(cell.seed): (cell, others[cell.seed]) for cell in cells if cell.ok and cell.seed in others}


def paired(
    view: View,
    cells: Mapping[str, tuple[Cell, Cell]],
    left: Mapping[str, Series],
    right: Mapping[str, Series],
) -> Pairs | Missing:
    """For each seed the times of the same epoch of two cells that took turns; Missing unless all of them did."""
    pairs: Pairs = []
    for seed, (one, other) in cells.items():
        common = [epoch for epoch in left[seed] if epoch in right[seed]]
        if not view.paired(one, other) or not common:
            return Missing("not measured in turn")
        engines = [cell.text("engine_active") for cell in (one, other)]
        if all(engines) and engines[0] != engines[1]:
            return Missing(f"{engines[0]} beside {engines[1]}")
        pairs.append([(left[seed][epoch], right[seed][epoch]) for epoch in common])
    return pairs


def paired_times(view: View, cells: Sequence[Cell], base: Sequence[Cell], metric: str) -> Pairs | Missing:
    """The times of the same epochs of cells of one method and of another, seed by seed."""
    sides = beside(cells, base)
    left, right = ({seed: times(view, pair[side], metric) or {} for seed, pair in sides.items()} for side in (0, 1))
    return paired(view, sides, left, right)


def disturbances(cell: Cell) -> list[str]:
    """Why the seconds of a cell are not comparable with those of others; nothing where nothing speaks against it.

    What was measured before this was recorded is not known to be disturbed.
    """
    found = []
    jobs, cores = cell.count("jobs"), cell.row.get("other_cores")
    if jobs is not None and jobs > 1:
        found.append(f"{jobs} blocks were measured at a time")
    if isinstance(cores, float) and OTHER_CORES < cores < math.inf:
        found.append(USED)
    return found


def comparable(estimate: Estimate, cells: Iterable[Cell], metric: str = "train_seconds") -> Estimate:
    """An estimate as it is; of times that were disturbed without an interval, so that it decides nothing."""
    if known(metric).unit != "s" and not known(metric).timed:
        return estimate
    reasons = dict.fromkeys(reason for cell in cells for reason in disturbances(cell))
    return (
        replace(estimate, low=None, high=None, reason=f"{INCOMPARABLE}: {', '.join(reasons)}") if reasons else estimate
    )


def is_comparable(estimate: Estimate | None) -> bool:
    """Whether :func:`comparable` has left it as it was."""
    return estimate is None or not estimate.reason.startswith(INCOMPARABLE)


def more_seconds(view: View, cells: Sequence[Cell], base: Sequence[Cell]) -> list[list[float]]:
    """Seconds a step that ``cells`` take more than ``base``, for each seed, from epochs measured in turn."""
    sides = beside(cells, base)
    left, right = ({seed: step_seconds(view, pair[side]) for seed, pair in sides.items()} for side in (0, 1))
    return [[one - other for one, other in cell] for cell in paired(view, sides, left, right) or ()]


def whole(cell: Cell, found: Answered, metric: str, at: At = "last") -> Answered | Missing:
    """What was found, if that is an answer; Missing where a shortened run cannot know it.

    It knows nothing of the end, of epochs that it has not, and of targets that it did not reach.

    Args:
        cell: whose number or times were found.
        found: by ``value`` or ``times``.
        metric, at: what was asked for.
    """
    if not cell.shortened or not cell.ok:
        return found
    table, (_, last) = known(metric).table, _bounds(at) or (0, 0)
    over_all = at in ("area", "all")
    at_the_end = table == "epochs" and (at in ("last", "best") or (over_all and not known(metric).timed))
    never = table == "targets" and found in (0.0, math.inf)
    beyond = table == "epochs" and last > cell.epochs
    return Missing(f"shortened to {cell.shortened}") if at_the_end or never or beyond else found


def rounding(view: View, metric: str, cells: Sequence[Cell], numbers: Sequence[float] = ()) -> float:
    """The standard deviation that a difference of numbers, or a number, has by their being rounded.

    An accuracy is a share of so many examples, and targets are reached at the end of an epoch: such steps have the
    deviation of their width over the root of 12.

    Args:
        view: where the cells were measured.
        metric: of which they are.
        cells: one, or the two of a difference.
        numbers: where given, of the logarithm of their ratio; not 0.

    Returns:
        0 where there are no steps, or where they are not known.
    """
    steps = [_step(view, metric, cell) for cell in cells]
    if not all(steps):
        return 0.0
    return math.hypot(*(step / number for step, number in zip(steps, numbers, strict=True)) if numbers else steps)


def default_at(metric: str) -> str:
    """Where a metric is looked at unless a suite says otherwise: times over all epochs, the others at the last."""
    return "all" if known(metric).timed else "last"


def best_epoch(series: Series, metric: str) -> int | None:
    """The first epoch with the highest accuracy, or the lowest of anything else; None where none has a number."""
    numbers = {epoch: number for epoch, number in series.items() if not math.isnan(number)}
    if not numbers:
        return None
    sign = known(metric).sign
    return max(numbers, key=lambda epoch: (sign * numbers[epoch], -epoch))


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


def _step(view: View, metric: str, cell: Cell) -> float:
    """The deviation by rounding of one cell's number; 0 where it is not known."""
    match metric:
        case "test_accuracy":
            examples = cell.count("test_examples")
            step = 1 / examples if examples else 0.0
        case "epochs_to":
            step = 1.0
        case "steps_to":
            step = statistics.median(view.series(cell, "steps").values() or [0.0])
        case "seconds_to":
            step = statistics.median(view.times(cell, "train_seconds").values() or [0.0])
        case _:
            step = 0.0
    return step / math.sqrt(12)


def _lacking(view: View, cell: Cell, metric: str) -> Missing:
    reason = why(view, cell, metric)
    return Missing(f"no {metric}" + (f": {reason}" if reason else ""))


def _at(series: Series, metric: str, at: At) -> float | Missing:
    if at == "last":
        return series[max(series)]
    if at == "best":
        epoch = best_epoch(series, metric)
        return Missing(f"{metric} is not a number") if epoch is None else series[epoch]
    if at in ("area", "all"):
        return sum(series.values()) / len(series)
    picked = _within(series, metric, at)
    if isinstance(picked, Missing):
        return picked
    first, last = _bounds(at) or (0, 0)
    if len(picked) < last - first + 1:
        return Missing(f"{metric} of {len(picked)} of {describe_at(at)}")
    return sum(picked.values()) / len(picked)


def _within(series: Series, metric: str, at: At) -> Series | Missing:
    bounds = _bounds(at)
    if bounds is None:
        return Missing(f"at = {told(at)} picks no epoch")
    picked = {epoch: number for epoch, number in series.items() if bounds[0] <= epoch <= bounds[1]}
    return picked or Missing(f"no {metric} at {describe_at(at)}")


def _bounds(at: At) -> tuple[int, int] | None:
    """The first and the last epoch of a table; None where a file holds something else."""
    match at:
        case {"epoch": int(epoch)}:
            return epoch, epoch
        case {"epochs": [int(first), int(last)]} if first <= last:
            return first, last
    return None


def _over_steps(view: View, cell: Cell, metric: str) -> float | None:
    kinds = view.steps.of(cell.key, "preconditioner")
    several = len(set(kinds)) > 1
    numbers = [
        number
        for number, kind in zip(view.steps.numbers(cell.key, metric), kinds, strict=True)
        if number is not None and not (several and kind != PRECONDITIONER)
    ]
    return statistics.median(numbers) if numbers and not any(map(math.isnan, numbers)) else None


def _target(view: View, cell: Cell, metric: str, target: float | None) -> float | Missing:
    if metric == "reached" and cell.status in ("diverged", "not-applicable"):
        return 0.0
    if not cell.ok:
        return Missing(cell.status)
    gain = view.document.metric
    if target is None or not view.series(cell, gain):
        return _lacking(view, cell, gain)
    first = view.reaching(cell, target)
    if metric == "reached":
        return float(first is not None)
    if first is None:
        return math.inf
    if metric == "epochs_to":
        return float(first)
    column = "steps" if metric == "steps_to" else "train_seconds"
    series = view.series(cell, column)
    taken = [series.get(epoch, math.nan) for epoch in range(1, first + 1)]
    if not math.isfinite(total := sum(taken)):
        missing = next((epoch for epoch, one in enumerate(taken, 1) if not math.isfinite(one)), first)
        return Missing(f"no {column} of epoch {missing}")
    return total
