"""What goes over epochs and iterations: loss, accuracy, time, condition numbers (the paper's Figures 3 to 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bnpbench.records.rows import is_own, spoken
from bnpbench.report.data import Cell, Group, Scalar, Series, View
from bnpbench.report.figures.curves import about, absent, counted, over_seeds, ranged
from bnpbench.report.figures.model import Axis, Curve, Figure, Panel
from bnpbench.report.query import Missing, times
from bnpbench.text import number_of, span

_LOG_FROM = 30.0  # largest over smallest loss: from there a linear axis shows one curve and the ground
_EXPLODED = 20.0  # three times the loss of guessing among a thousand classes: one such epoch would rule the axis
_COLUMNS = 3  # of batch sizes in a figure
_MOST_POINTS = 150  # of a curve: more are one on top of the other
_STATISTICS = {
    "batch": "batch statistics",
    "batch_damped": "batch statistics, damped",
    "running_damped": "running statistics, damped",
}


def training(view: View, group: Group) -> Iterable[Figure]:
    """Loss above what the suite is about, a column for each batch size, three a figure.

    Nothing where no cell has two epochs.
    """
    gain = view.document.metric
    quantities = {"train_loss": "training loss", gain: spoken(gain)}
    panels = [
        (batch_size, column, drawn)
        for batch_size in group.batch_sizes
        for column, quantity in quantities.items()
        if (drawn := _curves(view, group, batch_size, column, quantity))
    ]
    curves = [curve for _, _, found in panels for curve in found]
    if max((len(curve.x) for curve in curves), default=0) < 2:
        return
    losses = [y for _, column, found in panels if column == "train_loss" for c in found for y in (*c.low, *c.high)]
    log = bool(losses) and min(losses) > 0 and max(losses) > _LOG_FROM * min(losses)
    sizes = list(dict.fromkeys(batch_size for batch_size, _, _ in panels))
    notes = (counted(curves), *absent(group, sizes), *_exploded(view, group), *about(view))
    for start in range(0, len(sizes), _COLUMNS):
        columns = tuple(
            Panel(
                f"batch size {batch_size}",
                Axis("epoch", whole=True),
                Axis(quantity, log=log and column == "train_loss"),
                found,
            )
            for column, quantity in quantities.items()
            for batch_size, of, found in panels
            if of == column and batch_size in sizes[start : start + _COLUMNS]
        )
        yield Figure(
            "training",
            view.suite,
            view.id,
            "training",
            " and ".join(quantities.values()).capitalize(),
            columns,
            notes,
            shared=True,
            spread=ranged(curves),
        )


def _curves(view: View, group: Group, batch_size: int, column: str, quantity: str) -> tuple[Curve, ...]:
    def series(cell: Cell) -> Series:
        found = view.series(cell, column)
        return found if is_own(column) else _drawn(found)

    found = [over_seeds(method, quantity, group.at(method, batch_size), series) for method in group.methods]
    return tuple(curve for curve in found if curve is not None)


def _drawn(series: Series) -> Series:
    return {epoch: value for epoch, value in series.items() if not value > _EXPLODED}


def _exploded(view: View, group: Group) -> list[str]:
    """How many epochs are left out for their loss: a sentence, or nothing."""
    cells = [cell for size in group.batch_sizes for method in group.methods for cell in group.at(method, size)]
    losses = [loss for cell in cells for loss in view.series(cell, "train_loss").values()]
    count = sum(loss > _EXPLODED for loss in losses)
    return (
        [f"Not drawn: training losses above {_EXPLODED:.0f}, in {count} of {number_of(len(losses), 'epoch')}."]
        if count
        else []
    )


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
        view.id,
        "cumulative-time",
        "Cumulative time of training",
        tuple(panels),
        notes,
        spread=ranged(curves),
    )


def _cumulated(view: View, cell: Cell) -> Series:
    """Up to the first epoch that has no time."""
    seconds = times(view, cell, "train_seconds")
    if isinstance(seconds, Missing):
        return {}
    whole = [epoch for place, epoch in enumerate(sorted(seconds), 1) if epoch == place]
    return {0: 0.0, **dict(zip(whole, accumulate(seconds[epoch] for epoch in whole), strict=True))}


@dataclass(frozen=True)
class _Look:
    """A look at the Hessian with respect to one neuron."""

    step: int  # iterations from 1, through all epochs
    layer: Scalar
    neuron: Scalar
    preconditioner: str | None
    kappa_hessian: float | None
    kappa_preconditioned: float | None
    kappa_d: float | None


_Looks = Mapping[str, Sequence[Sequence[_Look]]]  # method to the looks of each seed


def conditioning(view: View, group: Group) -> Iterable[Figure]:
    """A figure for each batch size, layer and neuron: κ of both Hessians above, κ of D below."""
    for batch_size in group.batch_sizes:
        looks = {
            method: [_looks(view, cell) for cell in group.at(method, batch_size) if cell.ok] for method in group.methods
        }
        for layer, neuron in dict.fromkeys((look.layer, look.neuron) for look in _every(looks)):
            chosen = {
                method: [[look for look in seed if (look.layer, look.neuron) == (layer, neuron)] for seed in seeds]
                for method, seeds in looks.items()
            }
            yield from _figure(view, group, batch_size, f"layer {layer}, neuron {neuron}", chosen)


def _figure(view: View, group: Group, batch_size: int, place: str, looks: _Looks) -> Iterable[Figure]:
    x = Axis("iteration", whole=True)
    present = {look.preconditioner for look in _every(looks) if look.preconditioner is not None}
    window = _window({look.step for look in _every(looks)})
    kinds = [*(kind for kind in _STATISTICS if kind in present), *sorted(present - set(_STATISTICS))]
    hessians, ds = list[Panel](), list[Panel]()
    for kind in kinds:
        before, after, matrix = (
            [_curve(method, _points(seeds, window, kind, kappa), quantity) for method, seeds in looks.items()]
            for quantity, kappa in (
                ("κ of the Hessian", lambda look: look.kappa_hessian),
                ("κ of the preconditioned Hessian", lambda look: look.kappa_preconditioned),
                ("κ of D", lambda look: look.kappa_d),
            )
        )
        both = [curve for pair in zip(before, after, strict=True) for curve in pair]
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
    several = any(n > 1 for panel in both_rows for curve in panel.curves for n in curve.n)
    spread = f"range over {each} and seeds" if several else ""
    yield Figure("conditioning", view.suite, view.id, "conditioning", title, both_rows, tuple(notes), spread=spread)


def _every(looks: _Looks) -> Iterable[_Look]:
    return (look for seeds in looks.values() for seed in seeds for look in seed)


def _looks(view: View, cell: Cell) -> list[_Look]:
    steps, layers, neurons, kinds = (
        view.steps.of(cell.key, name) for name in ("step", "layer", "neuron", "preconditioner")
    )
    kappas = [view.steps.numbers(cell.key, name) for name in ("kappa_hessian", "kappa_preconditioned", "kappa_d")]
    return [
        _Look(step, layer, neuron, None if kind is None else str(kind), *numbers)
        for step, layer, neuron, kind, *numbers in zip(steps, layers, neurons, kinds, *kappas, strict=True)
        if isinstance(step, int)
    ]


def _points(
    seeds: Sequence[Sequence[_Look]], window: int, kind: str, kappa: Callable[[_Look], float | None]
) -> list[list[tuple[int, float]]]:
    """Iterations and numbers of each window that has any, in order."""
    points: dict[int, list[tuple[int, float]]] = {}
    for seed in seeds:
        for look in seed:
            number = kappa(look)
            if look.preconditioner == kind and number is not None and 0 < number < math.inf:
                points.setdefault((look.step - 1) // window, []).append((look.step, number))
    return [points[place] for place in sorted(points)]


def _curve(method: str, points: Sequence[Sequence[tuple[int, float]]], quantity: str) -> Curve | None:
    if not points:
        return None
    values = [[number for _, number in point] for point in points]
    return Curve(
        method,
        quantity,
        tuple(math.fsum(iteration for iteration, _ in point) / len(point) for point in points),
        tuple(math.exp(math.fsum(map(math.log, column)) / len(column)) for column in values),
        tuple(map(min, values)),
        tuple(map(max, values)),
        dashed=quantity == "κ of the Hessian",
        n=tuple(map(len, values)),
    )


def _window(iterations: Collection[int]) -> int:
    """How many iterations become one point."""
    return math.ceil(max(iterations) / _MOST_POINTS) if len(iterations) > _MOST_POINTS else 1
