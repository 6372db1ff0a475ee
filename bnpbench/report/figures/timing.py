"""Cumulative time over epochs, and the time of a step against the batch size (the paper's Figure 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from bnpbench.report.extra import step_seconds
from bnpbench.report.figures.model import Axis, Curve, Figure, Panel
from bnpbench.report.figures.seeds import about, absent, counted, over_seeds
from bnpbench.report.groups import Group
from bnpbench.report.metrics import NoDataError, times
from bnpbench.report.view import Cell, View
from bnpbench.statistics.bootstrap import cells_interval
from bnpbench.statistics.intervals import LEAST_PAIRS
from bnpbench.text import span

INTERVAL = "Median and 95 % interval (bootstrap)"


def cumulative_time(view: View, group: Group) -> Iterable[Figure]:
    """Seconds of training up to the end of each epoch, a panel for each batch size."""
    panels = []
    for batch_size in group.batch_sizes:
        found = [
            over_seeds(method, "seconds", group.at(method, batch_size), lambda cell: _cumulated(view, cell))
            for method in group.methods
        ]
        curves = tuple(curve for curve in found if curve is not None)
        if curves:
            title = f"batch size {batch_size}"
            panels.append(Panel(title, Axis("epoch", whole=True), Axis("seconds of training"), curves))
    curves = tuple(curve for panel in panels for curve in panel.curves)
    if max((len(curve.x) for curve in curves), default=0) <= 2:
        return
    notes = (counted(curves), *absent(group, group.batch_sizes), *about(view))
    yield Figure(
        "cumulative-time",
        view.suite,
        view.environment["id"],
        "cumulative-time",
        "Cumulative time of training",
        tuple(panels),
        notes,
    )


def step_time(view: View, group: Group) -> Iterable[Figure]:
    """Milliseconds a step against the batch size, over all epochs of all seeds."""
    curves = []
    for method in group.methods:
        points = dict[int, list[list[float]]]()
        for batch_size in filter(_is_size, sorted(group.batch_sizes)):
            cells = group.at(method, batch_size)
            series = [step_seconds(view, cell).values() for cell in cells if cell.ok]
            if any(series):
                points[batch_size] = [[1e3 * seconds for seconds in epochs] for epochs in series if epochs]
        if points:
            curves.append(interval_curve(method, "milliseconds a step", points))
    if not curves:
        return
    sizes = tuple(sorted({x for curve in curves for x in curve.x}))
    panel = Panel("", Axis("batch size", log=True, whole=True, at=sizes), Axis("ms a step", log=True), tuple(curves))
    notes = (*explained(curves, "epochs"), *absent(group, group.batch_sizes), *about(view))
    title = "Time of a step against the batch size"
    yield Figure("step-time", view.suite, view.environment["id"], "step-time", title, (panel,), notes)


def interval_curve(method: str, quantity: str, points: Mapping[int, Sequence[Sequence[float]]]) -> Curve:
    """For each batch size the median of its cells' values with its interval; with too few for one, their range."""
    estimates = {x: cells_interval(cells) for x, cells in points.items()}
    return Curve(
        method,
        quantity,
        tuple(map(float, points)),
        tuple(estimate.value for estimate in estimates.values()),
        tuple(min(map(min, points[x])) if e.low is None else e.low for x, e in estimates.items()),
        tuple(max(map(max, points[x])) if e.high is None else e.high for x, e in estimates.items()),
        spread="bars",
        n=tuple(estimate.n for estimate in estimates.values()),
    )


def explained(curves: Iterable[Curve], unit: str) -> list[str]:
    """What the bars of such curves are."""
    counts = {n for curve in curves for n in curve.n}
    enough, few = {n for n in counts if n >= LEAST_PAIRS}, {n for n in counts if 1 < n < LEAST_PAIRS}
    found = [f"{INTERVAL} over {span(enough)} {unit}."] if enough else []
    if few:
        found.append(f"Where there are only {span(few)} {unit}, the bar is their range.")
    if 1 in counts:
        found.append("A single value has no bar.")
    return found


def _is_size(batch_size: int) -> bool:
    return batch_size > 0  # 0 where unknown


def _cumulated(view: View, cell: Cell) -> Mapping[int, float]:
    """Up to the first epoch that has no time."""
    try:
        seconds = times(view, cell, "train_seconds")
    except NoDataError:
        return {}
    whole = [epoch for place, epoch in enumerate(sorted(seconds), 1) if epoch == place]
    return {0: 0.0, **dict(zip(whole, accumulate(seconds[epoch] for epoch in whole), strict=True))}
