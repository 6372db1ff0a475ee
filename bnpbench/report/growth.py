"""How costs grow with batch size, width and depth: where BNP becomes cheaper than BN, and the exponents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bnpbench.report.document import Record, Section, Table, record
from bnpbench.report.extra import Crossing, crossing, differences, measured_crossing, step_seconds
from bnpbench.report.groups import Group
from bnpbench.report.view import Cell, View
from bnpbench.results import told
from bnpbench.statistics.intervals import Estimate, power_law
from bnpbench.text import DASH, dash, fixed, significant

LEAST_VALUES = 3  # of an axis, for an exponent
LEAST_SIZES = 4  # of batches, for a crossing to be looked for
LARGEST = 2**63  # width that is one: a file may hold any number
_ALIKE = ("engine", "precision", "memory_format", "device", "threads")  # what all points of a fit have in common
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
class _Point:
    """One place of the sweep: its cells of all seeds, and vanilla's beside them."""

    at: Mapping[str, float]  # N, width, depth
    cells: Sequence[Cell]
    base: Sequence[Cell]


def growth(view: View, groups: Sequence[Group]) -> Section | None:
    """Tables of a suite that sweeps width or depth; None for the others."""
    shapes = [shape for group in groups if (shape := _shape(group.cells[0])) is not None]
    if all(len({shape[name] for shape in shapes}) < LEAST_VALUES for name in ("width", "depth")):
        return None
    tables = [table for table in (_crossings(view, groups), _exponents(view, groups)) if table is not None]
    return Section("How costs grow", tables=tuple(tables)) if tables else None


def _crossings(view: View, groups: Sequence[Group]) -> Table | None:
    rows, records = [], list[Record]()
    for group in groups:
        bn, bnp = group.base("bn"), group.base("bnp")
        sizes = [size for size in group.batch_sizes if size > 0]
        if bn is None or bnp is None or len(sizes) < LEAST_SIZES:
            continue
        shape = _shape(group.cells[0])
        found = [None if shape is None else 6 * shape["width"] / factor for factor in (28, 11)]
        found += [_of_flops(group, sizes, bnp, bn, column) for column in ("predicted", "counted")]
        names = ("28N = 6n'", "11N = 6n'", "predicted", "counted")
        measured = measured_crossing(view, group, bnp, bn, sizes)
        rows.append((group.title or "all", *map(_number, found), _told(measured)))
        records += [
            Record("crossing", group.title, bnp, None, name, x) for name, x in zip(names, found, strict=True) if x
        ]
        if measured is not None:
            n = len(sizes)
            records.append(
                Record("crossing", group.title, bnp, None, "measured", measured.size, measured.low, measured.high, n)
            )
    if not rows:
        return None
    columns = ("cells", "28N = 6n'", "11N = 6n'", "predicted", "counted", "measured")
    return Table("Crossing of BNP and BN", columns, tuple(rows), (_CROSSING,), tuple(records))


def _of_flops(group: Group, sizes: Iterable[int], bnp: str, bn: str, column: str) -> float | None:
    sides = [
        {
            float(size): float(flops)
            for size in sizes
            for cell in group.at(method, size)[:1]
            if (flops := cell.row.get(f"flops_method_{column}"))
        }
        for method in (bnp, bn)
    ]
    return crossing(*sides)


def _number(x: float | None) -> str:
    return dash() if x is None else significant(x, 3)


def _told(found: Crossing | None) -> str:
    if found is None:
        return dash("not measured in turn")
    between = f"[{found.low or DASH}, {found.high or DASH}]"
    if found.size is None:
        return f"{dash('BNP takes more time' if found.costs_more else 'BNP takes less time')} {between}"
    return f"{significant(found.size, 2)} {between}"


# --- exponents ------------------------------------------------------------------------------


def _exponents(view: View, groups: Sequence[Group]) -> Table | None:
    rows, records, axes = [], list[Record](), dict[str, None]()
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
        texts = [_interval(found[name]) if name in found else dash() for name in axes]
        points_text = f"{next(iter(found.values())).n}" + (f" ({lost} left out)" if lost else "")
        rows.append((*([alike] if several else []), method, what, *texts, points_text))
        records += [
            record(e, table="exponents", group=alike, method=method, quantity=f"exponent of {name}, {what}")
            for name, e in found.items()
        ]
    if not rows:
        return None
    columns = (*(["cells"] if several else []), "method", "cost", *(f"exponent of {name}" for name in axes), "points")
    return Table("Exponents", columns, tuple(rows), (_EXPONENTS,), tuple(records))


def _points(groups: Sequence[Group]) -> dict[tuple[str, str], list[_Point]]:
    """What else they have in common and the method → its points, of fully connected networks of one width each."""
    found: dict[tuple[str, str], list[_Point]] = {}
    settings = [group.cells[0].settings for group in groups]
    telling = [name for name in _ALIKE if len({repr(of.get(name)) for of in settings}) > 1]
    for group in groups:
        vanilla = group.base("vanilla")
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
    network: Any = cell.settings.get("network")
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
        yield "time over vanilla", [_middle(differences(view, point.cells, point.base)) for point in points]
        yield "operations, predicted", [_flops(point, "flops_method_predicted") for point in points]


def _middle(cells: Sequence[Sequence[float]]) -> float | None:
    values = [value for cell in cells for value in cell]
    return median(values) if values else None


def _flops(point: _Point, column: str) -> float | None:
    return next((float(cell.row[column]) for cell in point.cells if cell.ok and cell.row[column]), None)


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
