"""Curves with their spread over seeds or epochs, and the sentences that explain a figure and what it leaves out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bnpbench.report.data import Cell, Group, Series, View, measured
from bnpbench.report.figures.model import Curve
from bnpbench.report.tables.summary import deviations, heading
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import span

INTERVAL = "95 % interval"


def over_seeds(
    method: str,
    quantity: str,
    cells: Sequence[Cell],
    series: Callable[[Cell], Series],
    *,
    dashed: bool = False,
) -> Curve | None:
    """Mean and range over seeds at each x that every seed has a number at; None where there is none."""
    found = [{x: y for x, y in series(cell).items() if math.isfinite(y)} for cell in cells if cell.ok]
    found = [numbers for numbers in found if numbers]
    if not found:
        return None
    common = sorted(set.intersection(*(set(numbers) for numbers in found)))
    columns = [[numbers[x] for numbers in found] for x in common]
    if not columns:
        return None
    return Curve(
        method,
        quantity,
        tuple(map(float, common)),
        tuple(math.fsum(y / len(column) for y in column) for column in columns),
        tuple(map(min, columns)),
        tuple(map(max, columns)),
        dashed,
        n=(len(found),) * len(common),
    )


def interval_curve(method: str, quantity: str, estimates: Mapping[int, Estimate]) -> Curve:
    """For each batch size an estimate with its interval; without a bar where it has none."""
    return Curve(
        method,
        quantity,
        tuple(map(float, estimates)),
        tuple(estimate.value for estimate in estimates.values()),
        tuple(e.value if e.low is None else e.low for e in estimates.values()),
        tuple(e.value if e.high is None else e.high for e in estimates.values()),
        spread="bars",
        n=tuple(estimate.n for estimate in estimates.values()),
    )


def ranged(curves: Iterable[Curve]) -> str:
    """``range over 3 seeds``, of bands; empty where none has any."""
    counts = {n for curve in curves for n in curve.n} - {1}
    return f"range over {span(counts)} seeds" if counts else ""


def counted(curves: Iterable[Curve]) -> str:
    """``Mean (line) and range (band) over 3 seeds.``"""
    counts = [n for curve in curves for n in curve.n]
    if set(counts) <= {1}:
        return "One seed, no spread."
    return f"Mean (line) and range (band) over {span(counts)} seeds."


def explained(curves: Sequence[Curve]) -> list[str]:
    """What the points and bars of such curves are."""
    counts = {n for curve in curves for n in curve.n}
    found = [f"Median of the epochs of each seed, mean over seeds: {span(counts)} epochs a point."]
    if any(low == high for curve in curves for low, high in zip(curve.low, curve.high, strict=True)):
        found.append("Points without a bar have no interval.")
    return found


def absent(group: Group, batch_sizes: Iterable[int]) -> list[str]:
    """What of the group at these batch sizes was not measured to its end: a sentence, or nothing."""
    places = [(method, batch_size) for batch_size in batch_sizes for method in group.methods]
    parts = [
        f"{method} at N = {batch_size} ({others})"
        for method, batch_size in places
        if (cells := group.at(method, batch_size)) and (others := measured(cells)[1])
    ]
    if not parts:
        return []
    more = f", and {len(parts) - 6} more" if len(parts) > 6 else ""
    return [f"Not shown, or not with all seeds: {', '.join(parts[:6])}{more}."]


def about(view: View) -> list[str]:
    """Suite and machine, and how the run is smaller than the suite or the data."""
    section = deviations(view)
    lines = section.lines if section else ()
    reduced = [f"{line[0].upper()}{line[1:]}." for line in lines if line.startswith(("shortened", "limited"))]
    return [f"Suite {heading(view).title}.", *reduced]


def slug(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:60] or "suite"
