"""Measured against predicted cost of a method, with the batch size where BNP becomes cheaper than BN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bnpbench.report.extra import crossing, differences, measured_crossing
from bnpbench.report.figures.model import Axis, Curve, Figure, Mark, Panel
from bnpbench.report.figures.seeds import about, absent
from bnpbench.report.figures.timing import explained, interval_curve
from bnpbench.report.groups import Group
from bnpbench.report.view import View
from bnpbench.text import significant


def cost(view: View, group: Group) -> Iterable[Figure]:
    """FLOPs of the methods and their extra time, against the batch size; nothing with fewer than two batch sizes."""
    sizes = sorted(size for size in group.batch_sizes if size > 0)
    predicted = _flops(group, sizes, "flops_method_predicted", "predicted", dashed=True)
    counted = _flops(group, sizes, "flops_method_counted", "counted", dashed=False)
    base = group.base("vanilla")
    extra = _extra(view, group, base, sizes) if base else []
    if max((len(curve.x) for curve in predicted), default=0) < 2:
        return
    pair = group.base("bn"), group.base("bnp")
    marks = _crossings(predicted, pair, "predicted", dashed=True) + _crossings(counted, pair, "counted")
    axis = Axis("batch size", log=True, whole=True, at=tuple(map(float, sizes)))
    flops = (*predicted, *counted)
    panels = [Panel("FLOPs a step", axis, Axis("FLOPs of the method", log=True), flops, marks=tuple(marks))]
    notes = ["FLOPs: predicted by the paper's formula (dashed), counted on the plain algorithm (solid)."]
    measured = list[Mark]()
    if extra:
        measured = _measured(view, group, pair, sizes)
        milliseconds = Axis(f"ms more than {base}")
        panels.append(Panel("measured time a step", axis, milliseconds, tuple(extra), marks=tuple(measured)))
        notes += explained(extra, "epochs")
    notes += _told(pair, [*marks, *measured], measured=bool(extra))
    notes += [*absent(group, sizes), *about(view)]
    title = "Predicted, counted and measured cost"
    yield Figure("cost", view.suite, view.environment["id"], "cost", title, tuple(panels), tuple(notes))


def _flops(group: Group, sizes: Sequence[int], column: str, quantity: str, *, dashed: bool) -> list[Curve]:
    found = []
    for method in group.methods:
        points = {}
        for size in sizes:
            counts = [float(cell.row[column]) for cell in group.at(method, size) if cell.ok and cell.row.get(column)]
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
            more = differences(view, group.at(method, size), group.at(base, size)) if method != base else []
            if more:
                points[size] = [[1e3 * seconds for seconds in cell] for cell in more]
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


def _measured(view: View, group: Group, pair: tuple[str | None, str | None], sizes: Sequence[int]) -> list[Mark]:
    bn, bnp = pair
    found = measured_crossing(view, group, bnp, bn, sizes) if bn is not None and bnp is not None else None
    return [] if found is None or found.size is None else [Mark(found.size, "measured")]


def _told(pair: tuple[str | None, str | None], marks: Sequence[Mark], *, measured: bool) -> list[str]:
    if None in pair:
        return []
    known = {mark.text: mark.x for mark in marks}
    places = [f"N ≈ {significant(x, 2)} ({what})" for what, x in known.items()]
    found = [f"{pair[0]} and {pair[1]} cost the same at {', '.join(places)}: vertical lines."] if places else []
    never = [what for what in ("predicted", "counted", *(["measured"] if measured else [])) if what not in known]
    return [*found, *([f"They do not cross in this range as {' or '.join(never)}."] if never else [])]
