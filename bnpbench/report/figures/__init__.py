"""The paper's figures, and claims as a forest plot, as data. ``FIGURES`` is the one place that lists them. No torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bnpbench.report.data import Group, View
from bnpbench.report.figures.answer import cost_and_gain
from bnpbench.report.figures.curves import slug
from bnpbench.report.figures.epochs import conditioning, cumulative_time, training
from bnpbench.report.figures.forest import forest
from bnpbench.report.figures.model import LARGEST, Axis, Cross, CrossPanel, Curve, Figure, ForestPanel, Panel, inks
from bnpbench.report.figures.pareto import pareto
from bnpbench.report.figures.sizes import cost, step_time
from bnpbench.report.query import disturbances
from bnpbench.report.tables.summary import incomparable
from bnpbench.text import number_of

__all__ = ["Cross", "CrossPanel", "Curve", "Figure", "ForestPanel", "Panel", "figures", "inks"]

FIGURES: tuple[Callable[[View, Group], Iterable[Figure]], ...] = (
    cost_and_gain,
    pareto,
    training,
    conditioning,
    cumulative_time,
    step_time,
    cost,
)  # each of the cells that share a table; claims, of a whole suite, come after them
TIMED = (cost_and_gain, pareto, cumulative_time, step_time, cost)  # of these those that show times
PAPER = "Lange, Helfrich and Ye 2022"
DRAWS = {"training": range(3, 8), "conditioning": (8,), "step-time": (9,)}  # kind to numbers of the paper's figures
_NUMBER = r"\d+(?: \((?:left|right)\))?"
_CITED = re.compile(rf"Figures? ({_NUMBER}(?:(?:, and|,| and) {_NUMBER})*)")
_MOST_PANELS = 6  # of a figure: more are not legible at half a page


def figures(views: Sequence[View], *, every: bool = False) -> list[Figure]:
    """The figures of these views, each with a name of its own; none has an empty panel.

    Args:
        views: what is drawn.
        every: also those that show times of cells whose times are not comparable.
    """
    suites = Counter(view.suite for view in views)
    found: dict[str, list[Figure]] = {}
    for view in views:
        place = slug(view.suite) + (f"-{slug(view.id)}" if suites[view.suite] > 1 else "")
        for figure in _of_view(view, every):
            for part in _split(_drawable(figure)):
                found.setdefault(f"{place}-{part.name}", []).append(part)
    return [
        replace(figure, name=f"{name}-{place}" if len(same) > 1 else name)
        for name, same in found.items()
        for place, figure in enumerate(same, 1)
    ]


def _of_view(view: View, every: bool) -> Iterable[Figure]:
    for group in view.layout.groups:
        disturbed = any(disturbances(cell) for cell in group.cells)
        told = tuple(f"{line[0].upper()}{line[1:]}." for line in incomparable(view)) if disturbed else ()
        for build in (build for build in FIGURES if every or not (disturbed and build in TIMED)):
            for figure in build(view, group):
                title = figure.title + _repeated(view.document.source or "", figure.kind)
                notes = (*figure.notes, *(told if build in TIMED else ()))
                yield replace(figure, title=f"{title}: {group.title}" if group.title else title, notes=notes)
    yield from forest(view)


def _repeated(source: str, kind: str) -> str:
    """``, Figure 9 of the paper``: which of its figures a suite repeats, of those that this kind of figure draws."""
    if PAPER not in source or source.lower().startswith("after"):
        return ""
    cited = [number for numbers in _CITED.findall(source) for number in re.findall(_NUMBER, numbers)]
    found = [number for number in cited if int(number.split()[0]) in DRAWS.get(kind, ())]
    return f", Figure{'s' if len(found) > 1 else ''} {' and '.join(found)} of the paper" if found else ""


def _drawable(figure: Figure) -> Figure:
    """Without the points that no axis has room for; with a note where there are any."""
    panels = [panel for panel in figure.panels if isinstance(panel, Panel)]
    if not panels:
        return figure
    kept = [replace(panel, curves=tuple(_points(curve, panel.y) for curve in panel.curves)) for panel in panels]
    kept = [replace(panel, curves=tuple(curve for curve in panel.curves if curve.x)) for panel in kept]
    lost = sum(len(c.x) for panel in panels for c in panel.curves) - sum(len(c.x) for p in kept for c in p.curves)
    notes = (f"Left out: {number_of(lost, 'point')} out of all bounds.",) if lost else ()
    return replace(figure, panels=tuple(panel for panel in kept if panel.curves), notes=(*figure.notes, *notes))


def _points(curve: Curve, axis: Axis) -> Curve:
    least = 1 / LARGEST if axis.log else -LARGEST
    columns = zip(curve.x, curve.y, curve.low, curve.high, curve.n or (1,) * len(curve.x), strict=True)
    kept = [column for column in columns if all(least < number < LARGEST for number in column[1:4])]
    x, y, low, high, n = zip(*kept, strict=True) if kept else ((), (), (), (), ())
    return replace(curve, x=x, y=y, low=low, high=high, n=n)


def _split(figure: Figure) -> Iterable[Figure]:
    for start in range(0, len(figure.panels), _MOST_PANELS):
        yield replace(figure, panels=figure.panels[start : start + _MOST_PANELS])
