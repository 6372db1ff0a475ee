"""Condition numbers of the Hessian, the preconditioned Hessian and D over iterations (the paper's Figure 8)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bnpbench.report.figures.model import Axis, Curve, Figure, Panel
from bnpbench.report.figures.seeds import about, absent
from bnpbench.report.groups import Group
from bnpbench.report.view import Cell, View
from bnpbench.text import span

_MOST_POINTS = 150  # of a curve: more are one on top of the other
_STATISTICS = {
    "batch": "batch statistics",
    "batch_damped": "batch statistics, damped",
    "running_damped": "running statistics, damped",
}
_COLUMNS = ("step", "layer", "neuron", "preconditioner", "kappa_hessian", "kappa_preconditioned", "kappa_d")
Row = dict[str, Any]


def conditioning(view: View, group: Group) -> Iterable[Figure]:
    """A figure for each batch size, layer and neuron: κ of both Hessians above, κ of D below."""
    for batch_size in group.batch_sizes:
        rows = {
            method: [_rows(view, cell) for cell in group.at(method, batch_size) if cell.ok] for method in group.methods
        }
        everything = [row for seeds in rows.values() for seed in seeds for row in seed]
        for layer, neuron in dict.fromkeys((row["layer"], row["neuron"]) for row in everything):
            chosen = {
                method: [[row for row in seed if (row["layer"], row["neuron"]) == (layer, neuron)] for seed in seeds]
                for method, seeds in rows.items()
            }
            yield from _figure(view, group, batch_size, f"layer {layer}, neuron {neuron}", chosen)


def _figure(
    view: View, group: Group, batch_size: int, place: str, rows: Mapping[str, Sequence[list[Row]]]
) -> Iterable[Figure]:
    x = Axis("iteration", whole=True)
    present = {row["preconditioner"] for seeds in rows.values() for seed in seeds for row in seed}
    window = _window({row["step"] for seeds in rows.values() for seed in seeds for row in seed})
    kinds = [*(kind for kind in _STATISTICS if kind in present), *sorted(present - set(_STATISTICS) - {None})]
    hessians, ds = list[Panel](), list[Panel]()
    for kind in kinds:
        both = [
            _curve(method, seeds, window, kind, column, quantity, dashed=dashed)
            for method, seeds in rows.items()
            for column, quantity, dashed in (
                ("kappa_hessian", "κ of the Hessian", True),
                ("kappa_preconditioned", "κ of the preconditioned Hessian", False),
            )
        ]
        matrix = [_curve(method, seeds, window, kind, "kappa_d", "κ of D") for method, seeds in rows.items()]
        title = _STATISTICS.get(kind, kind)
        for panels, found, label in ((hessians, both, "κ of the Hessians"), (ds, matrix, "κ of D")):
            if curves := tuple(curve for curve in found if curve is not None):
                panels.append(Panel(title, x, Axis(label, log=True), curves))
    both_rows = (*hessians, *ds)
    if not both_rows:
        return
    counts = span(n for panel in both_rows for curve in panel.curves for n in curve.n)
    each = f"{window} iterations" if window > 1 else "each iteration"
    notes = [
        "Of the Hessian with respect to one neuron: before preconditioning dashed, after it solid.",
        f"Geometric mean (line) and range (band) over {each} and seeds ({counts} values a point).",
    ]
    notes += [*absent(group, [batch_size]), *about(view)]
    title = f"Condition numbers over iterations at batch size {batch_size}, {place}"
    yield Figure("conditioning", view.suite, view.environment["id"], "conditioning", title, both_rows, tuple(notes))


def _rows(view: View, cell: Cell) -> list[Row]:
    """The cell's looks at the Hessian; ``step`` counts iterations from 1, through all epochs."""
    columns = [view.steps.of(cell.key, name) for name in _COLUMNS]
    rows = [dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)]
    return [row for row in rows if row["step"] is not None]


def _curve(
    method: str,
    seeds: Sequence[list[Row]],
    window: int,
    kind: str,
    column: str,
    quantity: str,
    *,
    dashed: bool = False,
) -> Curve | None:
    groups: dict[int, list[tuple[int, float]]] = {}
    for seed in seeds:
        for row in seed:
            number = row[column]
            if row["preconditioner"] == kind and number is not None and 0 < number < math.inf:
                groups.setdefault((row["step"] - 1) // window, []).append((row["step"], number))
    if not groups:
        return None
    points = [groups[place] for place in sorted(groups)]
    values = [[number for _, number in point] for point in points]
    return Curve(
        method,
        quantity,
        tuple(math.fsum(iteration for iteration, _ in point) / len(point) for point in points),
        tuple(math.exp(math.fsum(map(math.log, column)) / len(column)) for column in values),
        tuple(map(min, values)),
        tuple(map(max, values)),
        dashed,
        n=tuple(map(len, values)),
    )


def _window(iterations: Collection[int]) -> int:
    """How many iterations become one point."""
    return math.ceil(max(iterations) / _MOST_POINTS) if len(iterations) > _MOST_POINTS else 1
