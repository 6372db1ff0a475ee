"""What goes over batch sizes: the time of a step (the paper's Figure 9), and measured against predicted cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from bnpbench.registry import baselines, subject
from bnpbench.report.data import Group, View
from bnpbench.report.figures.curves import INTERVAL, about, absent, explained, interval_curve
from bnpbench.report.figures.model import Axis, Curve, Figure, Mark, Panel
from bnpbench.report.query import comparable, more_seconds, step_seconds
from bnpbench.report.tables.growth import Crossing, crossing, measured_crossing
from bnpbench.statistics.intervals import Estimate
from bnpbench.statistics.times import processes_interval
from bnpbench.text import significant


def step_time(view: View, group: Group) -> Iterable[Figure]:
    """Milliseconds a step against the batch size; nothing of a single one, of which a table says it all."""
    curves = []
    for method in group.methods:
        points = dict[int, Estimate]()
        for batch_size in (size for size in sorted(group.batch_sizes) if size > 0):
            cells = [cell for cell in group.at(method, batch_size) if cell.ok]
            series = [step_seconds(view, cell).values() for cell in cells]
            if any(series):
                milliseconds = [[1e3 * seconds for seconds in epochs] for epochs in series if epochs]
                points[batch_size] = comparable(processes_interval(milliseconds, "times"), cells)
        if points:
            curves.append(interval_curve(method, "milliseconds a step", points))
    sizes = tuple(sorted({x for curve in curves for x in curve.x}))
    if len(sizes) < 2:
        return
    panel = Panel("", Axis("batch size", log=True, whole=True, at=sizes), Axis("ms a step", log=True), tuple(curves))
    notes = (*explained(curves), *absent(group, group.batch_sizes), *about(view))
    title = "Time of a step against the batch size"
    yield Figure("step-time", view.suite, view.id, "step-time", title, (panel,), notes, spread=INTERVAL)


def cost(view: View, group: Group) -> Iterable[Figure]:
    """FLOPs of the methods and their extra time, against the batch size; nothing with fewer than two batch sizes."""
    sizes = sorted(size for size in group.batch_sizes if size > 0)
    predicted = _flops(group, sizes, "flops_method_predicted", "predicted", dashed=True)
    counted = _flops(group, sizes, "flops_method_counted", "counted", dashed=False)
    base = group.base(baselines()[0])
    extra = _extra(view, group, base, sizes) if base else []
    if max((len(curve.x) for curve in predicted), default=0) < 2:
        return
    pair = group.base(baselines()[-1]), group.base(subject())
    marks = _crossings(predicted, pair, "predicted", dashed=True) + _crossings(counted, pair, "counted")
    axis = Axis("batch size", log=True, whole=True, at=tuple(map(float, sizes)))
    flops = (*predicted, *counted)
    panels = [Panel("FLOPs a step", axis, Axis("FLOPs of the method", log=True), flops, marks=tuple(marks))]
    notes = ["FLOPs: predicted by a formula (dashed), counted on the plain algorithm (solid)."]
    measured, found = list[Mark](), None
    if extra:
        bn, bnp = pair
        found = measured_crossing(view, group, bnp, bn, sizes) if bn is not None and bnp is not None else None
        measured = [] if found is None or found.size is None else [Mark(found.size, "measured")]
        milliseconds = Axis(f"ms more than {base}")
        panels.append(Panel("measured time a step", axis, milliseconds, tuple(extra), marks=tuple(measured)))
        notes += explained(extra)
    notes += _told(pair, [*marks, *measured], found)
    notes += [*absent(group, sizes), *about(view)]
    title = "Predicted, counted and measured cost"
    spread = INTERVAL if extra else ""
    yield Figure("cost", view.suite, view.id, "cost", title, tuple(panels), tuple(notes), spread=spread)


def _flops(group: Group, sizes: Sequence[int], column: str, quantity: str, *, dashed: bool) -> list[Curve]:
    found = []
    for method in group.methods:
        points = {}
        for size in sizes:
            cells = [cell for cell in group.at(method, size) if cell.ok]
            counts = [float(count) for cell in cells if (count := cell.count(column))]
            if counts:
                points[float(size)] = counts[0]
        if points:
            y = tuple(points.values())
            found.append(Curve(method, f"FLOPs {quantity}", tuple(points), y, y, y, dashed))
    return found


def _extra(view: View, group: Group, base: str, sizes: Sequence[int]) -> list[Curve]:
    """Milliseconds a step more than the base, from epochs measured in turn."""
    found = []
    for method in group.methods:
        points = {}
        for size in sizes:
            both = group.at(method, size), group.at(base, size)
            more = more_seconds(view, *both) if method != base else []
            if more:
                milliseconds = [[1e3 * seconds for seconds in cell] for cell in more]
                points[size] = comparable(processes_interval(milliseconds, "differences"), chain(*both))
        if points:
            found.append(interval_curve(method, "ms a step more", points))
    return found


def _crossings(
    curves: Sequence[Curve], pair: tuple[str | None, str | None], what: str, *, dashed: bool = False
) -> list[Mark]:
    by_method = {curve.method: dict(zip(curve.x, curve.y, strict=True)) for curve in curves}
    sides = [by_method.get(label, {}) for label in pair if label is not None]
    x = crossing(*sides) if len(sides) == 2 else None
    return [] if x is None else [Mark(x, what, dashed)]


def _told(pair: tuple[str | None, str | None], marks: Sequence[Mark], measured: Crossing | None) -> list[str]:
    if None in pair:
        return []
    known = {mark.text: mark.x for mark in marks}
    places = [f"N ≈ {significant(x, 2)} ({what})" for what, x in known.items()]
    found = [f"{pair[0]} and {pair[1]} cost the same at {', '.join(places)}: vertical lines."] if places else []
    kinds = ("predicted", "counted", *(["measured"] if measured is not None and measured.sure else []))
    never = [what for what in kinds if what not in known]
    found += [f"They do not cross in this range as {' or '.join(never)}."] if never else []
    undecided = measured is not None and not measured.sure and measured.size is None
    return [*found, *(["Whether they cross in this range as measured is undecided."] if undecided else [])]
