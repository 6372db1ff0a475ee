"""How costs grow with batch size, width and depth: where BNP becomes cheaper than BN, and the exponents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bnpbench.registry import baselines, subject
from bnpbench.report.data import Cell, Group, View
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import comparable, more_seconds, step_seconds
from bnpbench.statistics.intervals import Estimate, power_law
from bnpbench.statistics.times import processes_interval
from bnpbench.suite import told
from bnpbench.suite.settings import FACTS, having
from bnpbench.text import DASH, dash, fixed, significant

LEAST_VALUES = 3  # of an axis, for an exponent
LEAST_SIZES = 4  # of batches, for a crossing to be looked for
LARGEST = 2**63  # width that is one: a file may hold any number
_CROSSING = (
    "Batch size N at which BNP starts to cost less than BN. 28N = 6n' and 11N = 6n': of one layer with n' = the hidden "
    "width, BN as the paper counts it and by the usual backward pass. Predicted and counted: operations of all layers "
    "together. Measured: time over vanilla, interpolated; in brackets the last N at which BNP surely takes more time "
    "than BN and the first at which it surely takes less (95 % intervals of paired differences)."
)
_EXPONENTS = (
    "Cost = c · N^a · width^b · depth^d, by least squares of the logarithms; 95 % intervals by Student's t over the "
    "points. One exponent for the whole range: small steps, whose time is all launching, lower it. Below each time the "
    "same fit to the predicted operations. Left out: points whose extra time is not above 0."
)


@dataclass(frozen=True)
class Crossing:
    """Where a method that costs more than another starts to cost less.

    Attributes:
        size: batch size, interpolated between ``low`` and ``high``; None where the order does not change there.
        low: the largest batch size at which it surely costs more (95 % interval of the paired differences).
        high: the smallest one above, at which it surely costs less.
        costs_more: whether it costs more at the smallest batch size that is looked at.
        sure: whether it surely costs more at the largest batch size still, or less at the smallest already.
    """

    size: float | None
    low: int | None
    high: int | None
    costs_more: bool
    sure: bool = True


@dataclass(frozen=True)
class _Point:
    """One place of the sweep: its cells of all seeds, and vanilla's beside them."""

    at: Mapping[str, float]  # N, width, depth
    cells: Sequence[Cell]
    base: Sequence[Cell]


def growth(view: View) -> Section | None:
    """Tables of a suite that sweeps width or depth; None for the others."""
    groups = view.groups
    shapes = [shape for group in groups if (shape := _shape(group.cells[0])) is not None]
    if all(len({shape[name] for shape in shapes}) < LEAST_VALUES for name in ("width", "depth")):
        return None
    tables = [table for table in (_crossings(view, groups), _exponents(view, groups)) if table is not None]
    return Section("How costs grow", tables=tuple(tables)) if tables else None


def _crossings(view: View, groups: Sequence[Group]) -> Table | None:
    rows, entries = list[tuple[str | Entry, ...]](), list[Entry]()
    for group in groups:
        bn, bnp = group.base(baselines()[-1]), group.base(subject())
        sizes = [size for size in group.batch_sizes if size > 0]
        if bn is None or bnp is None or len(sizes) < LEAST_SIZES:
            continue
        place, shape = Place("crossing", group.title, bnp), _shape(group.cells[0])
        places = {
            "28N = 6n'": None if shape is None else 6 * shape["width"] / 28,
            "11N = 6n'": None if shape is None else 6 * shape["width"] / 11,
            "predicted": _of_flops(group, sizes, bnp, bn, "predicted"),
            "counted": _of_flops(group, sizes, bnp, bn, "counted"),
        }
        found = [place.entry(name, x, shown=dash() if x is None else significant(x, 3)) for name, x in places.items()]
        measured = measured_crossing(view, group, bnp, bn, sizes)
        if measured is None:
            last = place.empty("measured", "not measured in turn")
        else:
            last = place.entry(
                "measured", measured.size, measured.low, measured.high, len(sizes), shown=_told(measured)
            )
        rows.append((group.title or "all", *found, last))
        entries += [entry for entry in found if entry.value] + ([last] if measured is not None else [])
    if not rows:
        return None
    columns = ("cells", "28N = 6n'", "11N = 6n'", "predicted", "counted", "measured")
    return Table("Crossing of BNP and BN", columns, tuple(rows), (_CROSSING,), tuple(entries))


def _of_flops(group: Group, sizes: Iterable[int], bnp: str, bn: str, column: str) -> float | None:
    sides = [
        {
            float(size): float(flops)
            for size in sizes
            for cell in group.at(method, size)[:1]
            if (flops := cell.count(f"flops_method_{column}"))
        }
        for method in (bnp, bn)
    ]
    return crossing(*sides)


def _told(found: Crossing) -> str:
    between = f"[{found.low or DASH}, {found.high or DASH}]"
    if found.size is None and not found.sure:
        return f"{dash('undecided')} {between}"
    if found.size is None:
        return f"{dash('BNP takes more time' if found.costs_more else 'BNP takes less time')} {between}"
    return f"{significant(found.size, 2)} {between}"


# --- crossings, of a table and of a figure ------------------------------------------------


def measured_crossing(view: View, group: Group, method: str, other: str, sizes: Iterable[int]) -> Crossing | None:
    """Where ``method`` starts to take less time than ``other``; None with fewer than two batch sizes of both.

    Interpolated between what both take more than vanilla, where that was measured in turn with them: such costs are
    powers of the batch size, and their difference is none.
    """
    sizes = sorted(sizes)
    found = {size: more_seconds(view, group.at(method, size), group.at(other, size)) for size in sizes}
    found = {size: cells for size, cells in found.items() if cells}
    if len(found) < 2:
        return None
    intervals = {
        size: comparable(processes_interval(cells, "differences"), (*group.at(method, size), *group.at(other, size)))
        for size, cells in found.items()
    }
    low = max((size for size, e in intervals.items() if e.low is not None and e.low > 0), default=None)
    above = [size for size, e in intervals.items() if e.high is not None and e.high < 0 and size > (low or 0)]
    high = min(above, default=None)
    sure = low == max(intervals) or (low is None and high == min(intervals))
    vanilla = group.base(baselines()[0])
    one, two = (
        {} if vanilla is None else extra_seconds(view, group, label, vanilla, sizes) for label in (method, other)
    )
    middle = {float(size): estimate.value for size, estimate in intervals.items()}
    if not one.keys() == two.keys() == middle.keys():
        one, two = middle, dict.fromkeys(middle, 0.0)
    kept = [size for size in middle if (low or 0) <= size <= (high or size)]
    return Crossing(crossing({size: one[size] for size in kept}, two), low, high, middle[min(kept)] > 0, sure)


def extra_seconds(view: View, group: Group, method: str, base: str, sizes: Iterable[int]) -> dict[float, float]:
    """Batch size to the median of the seconds a step that a method takes more than ``base``."""
    found = {float(size): more_seconds(view, group.at(method, size), group.at(base, size)) for size in sizes}
    return {size: median(value for cell in cells for value in cell) for size, cells in found.items() if cells}


def crossing(left: Mapping[float, float], right: Mapping[float, float]) -> float | None:
    """The first x at which left overtakes right or right left, between points that both have.

    Where both are positive, logarithms are interpolated: costs are powers of x.
    """
    common = sorted(set(left) & set(right))
    for before, after in pairwise(common):
        corners = left[before], right[before], left[after], right[after]
        if min(corners) > 0:
            one, two = (math.log(corners[i]) - math.log(corners[i + 1]) for i in (0, 2))
        else:
            one, two = corners[0] - corners[1], corners[2] - corners[3]
        if one * two < 0:
            share = one / (one - two) if math.isfinite(one - two) else 0.5
            return math.exp(math.log(before) + share * math.log(after / before))
        if one == 0 and two != 0:
            return before
    return None


# --- exponents ------------------------------------------------------------------------------


def _exponents(view: View, groups: Sequence[Group]) -> Table | None:
    rows, axes = list[tuple[str | Entry, ...]](), dict[str, None]()
    fits: list[tuple[str, str, str, dict[str, Estimate], int]] = []
    for (alike, method), points in _points(groups).items():
        for what, values in _costs(view, points):
            kept = [(point.at, value) for point, value in zip(points, values, strict=True) if value and value > 0]
            found = _fit([at for at, _ in kept], [value for _, value in kept])
            axes |= dict.fromkeys(found)
            if found:
                fits.append((alike, method, what, found, sum(value is not None for value in values) - len(kept)))
    several = len({alike for alike, *_ in fits}) > 1
    for alike, method, what, found, lost in fits:
        place = Place("exponents", alike, method)
        entries = [
            place.estimate(f"exponent of {name}, {what}", found[name], shown=_interval(found[name]))
            if name in found
            else dash()
            for name in axes
        ]
        points_text = f"{next(iter(found.values())).n}" + (f" ({lost} left out)" if lost else "")
        rows.append((*([alike] if several else []), method, what, *entries, points_text))
    if not rows:
        return None
    columns = (*(["cells"] if several else []), "method", "cost", *(f"exponent of {name}" for name in axes), "points")
    return Table("Exponents", columns, tuple(rows), (_EXPONENTS,))


def _points(groups: Sequence[Group]) -> dict[tuple[str, str], list[_Point]]:
    """What else they have in common and the method → its points, of fully connected networks of one width each."""
    found: dict[tuple[str, str], list[_Point]] = {}
    settings = [group.cells[0].settings for group in groups]
    run = sorted(having("run"), key=lambda name: -FACTS[name].heading)
    telling = [name for name in run if len({repr(of.get(name)) for of in settings}) > 1]
    for group in groups:
        vanilla = group.base(baselines()[0])
        for method, size, cells in group.places():
            shape = _shape(cells[0])
            if shape is None or size < 1 or vanilla is None:
                continue
            alike = ", ".join(f"{name} = {told(cells[0].settings.get(name))}" for name in telling)
            base = group.at(vanilla, size) if method != vanilla else []
            found.setdefault((alike, method), []).append(_Point({"N": float(size), **shape}, cells, base))
    return found


def _shape(cell: Cell) -> dict[str, float] | None:
    """Width and depth of the hidden layers, where all are equally wide."""
    network = cell.settings.get("network")
    hidden = network.get("hidden") if isinstance(network, dict) else None
    if not isinstance(hidden, list) or not hidden or not all(isinstance(w, int) and 0 < w < LARGEST for w in hidden):
        return None
    return {"width": float(hidden[0]), "depth": float(len(hidden))} if len(set(hidden)) == 1 else None


def _costs(view: View, points: Sequence[_Point]) -> Iterable[tuple[str, list[float | None]]]:
    """What is fitted, and its value at each point; None where there is none."""
    if not any(point.base for point in points):
        yield (
            "time of a step",
            [_middle([list(step_seconds(view, c).values()) for c in p.cells if c.ok]) for p in points],
        )
        yield "operations of the model", [_flops(point, "flops_model") for point in points]
    else:
        yield "time over vanilla", [_middle(more_seconds(view, point.cells, point.base)) for point in points]
        yield "operations, predicted", [_flops(point, "flops_method_predicted") for point in points]


def _middle(cells: Sequence[Sequence[float]]) -> float | None:
    values = [value for cell in cells for value in cell]
    return median(values) if values else None


def _flops(point: _Point, column: str) -> float | None:
    return next((float(count) for cell in point.cells if cell.ok and (count := cell.count(column))), None)


def _fit(places: Sequence[Mapping[str, float]], values: Sequence[float]) -> dict[str, Estimate]:
    """Exponents of the axes along which the points are spread widely enough."""
    names = [n for n in ("N", "width", "depth") if len({place[n] for place in places}) >= LEAST_VALUES]
    if not names:
        return {}
    found = power_law([[place[name] for place in places] for name in names], values)
    return dict(zip(names, found, strict=True)) if found else {}


def _interval(estimate: Estimate) -> str:
    value, *bounds = (
        fixed(round(x, 2) + 0.0, 2) for x in (estimate.value, estimate.low, estimate.high) if x is not None
    )
    return f"{value} [{', '.join(bounds)}]"
