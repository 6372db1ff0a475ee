"""Figures as data: what is drawn and in which colours, before matplotlib or a browser draws it.

The first colours are those of Okabe and Ito (2008), which people with any common colour blindness can tell apart; the
markers tell the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bnpbench.methods.base import MARKERS, Ink, MethodPlugin
from bnpbench.registry import built_in
from bnpbench.report.data import View
from bnpbench.report.verdicts import Outcome

LARGEST = 1e30  # what is larger, or on a logarithmic axis smaller than its inverse, is drawn on no axis
Spread = Literal["band", "bars"]


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: what it measures, with the unit.
        log: whether it is logarithmic.
        whole: whether its values are whole numbers.
        at: where its ticks stand; empty where the drawing may choose.
        limits: its ends; None where the drawing may choose.
    """

    label: str
    log: bool = False
    whole: bool = False
    at: tuple[float, ...] = ()
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curve:
    """A line, or single points, with its spread.

    Attributes:
        method: label of the method; gives the colour.
        quantity: what y is.
        x, y: the points; all finite.
        low, high: the spread at each point, equal to y where there is none.
        dashed: the style of the line.
        spread: how low and high are drawn.
        n: how many values each point rests on.
    """

    method: str
    quantity: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dashed: bool = False
    spread: Spread = "band"
    n: tuple[int, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A vertical line.

    Attributes:
        x: where.
        text: what is there.
        dashed: the style of the line.
    """

    x: float
    text: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what tells it from its sisters.
        x, y: its axes.
        curves: at least one.
        marks: vertical lines.
    """

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Row:
    """A claim in a forest plot.

    Attributes:
        says: the claim.
        detail: where, and the methods compared.
        outcome: its verdict.
        value: the estimate; may be infinite.
        low, high: its interval; None where there is none.
        bounds: at least, at most; infinite where there is none.
        value_text, interval_text: estimate and interval as text.
    """

    says: str
    detail: str
    outcome: Outcome
    value: float
    low: float | None
    high: float | None
    bounds: tuple[float, float]
    value_text: str
    interval_text: str


@dataclass(frozen=True)
class ForestPanel:
    """Claims about one quantity, on one axis.

    Attributes:
        axis: the quantity.
        rows: at least one.
    """

    axis: Axis
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Cross:
    """What a method costs and buys at one batch size.

    Attributes:
        method: its label; gives the colour.
        label: what stands beside the point.
        x, y: the point.
        x_interval, y_interval: low and high; None where there is none, and the point is drawn open.
    """

    method: str
    label: str
    x: float
    y: float
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None

    @property
    def open(self) -> bool:
        """Whether it lacks an interval."""
        return self.x_interval is None or self.y_interval is None


@dataclass(frozen=True)
class CrossPanel:
    """Points with an interval both ways: costs and gains over the same baseline, or two costs.

    Attributes:
        title: what tells it from its sisters.
        x, y: its axes, with their limits.
        base: the baseline's label; it stands at (1, 0). None: there is none.
        crosses: at least one.
        front: the points that none is better than both ways, along x; a line goes through them.
    """

    title: str
    x: Axis
    y: Axis
    base: str | None
    crosses: tuple[Cross, ...]
    front: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Figure:
    """What one file shows.

    Attributes:
        name: of the file, without folder and extension; only letters, digits, ``-``, ``_`` and ``.``.
        suite, environment: what it was measured with.
        kind: ``cost-and-gain``, ``pareto``, ``training``, ``conditioning``, ``cumulative-time``, ``step-time``,
            ``cost``, ``claims``.
        title: heading.
        panels: at least one.
        notes: what a reader must know, one sentence each.
        shared: whether panels with the same y axis have the same limits.
        spread: what bands, bars or crosses show, for the legend; empty where there are none.
    """

    name: str
    suite: str
    environment: str
    kind: str
    title: str
    panels: tuple[Panel, ...] | tuple[CrossPanel, ...] | tuple[ForestPanel, ...]
    notes: tuple[str, ...] = ()
    shared: bool = False
    spread: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the methods drawn, in order of appearance."""
        found = list[str]()
        for panel in self.panels:
            if isinstance(panel, Panel):
                found += [curve.method for curve in panel.curves]
            elif isinstance(panel, CrossPanel):
                found += [*([] if panel.base is None else [panel.base]), *(cross.method for cross in panel.crosses)]
        return tuple(dict.fromkeys(found))


_SPARE = [  # colours of Paul Tol's "muted" scheme
    ("#999933", "#c6c65a"),
    ("#117733", "#58b877"),
    ("#aa4499", "#d884ca"),
    ("#44aa99", "#6fd3c2"),
    ("#661100", "#c8705a"),
    ("#6699cc", "#9cc3ea"),
]


def inks(views: Iterable[View]) -> Mapping[str, Ink]:
    """Label of a method to its ink, for all methods of a report.

    The first label of a kind has the kind's own colour; further labels of it, and kinds that have none, get spare ones.
    No two have one marker, which is all that is left of an ink in grey, until there are more labels than markers. What
    a plugin's method looks like stands in the suite's document.
    """
    of_kind = {kind: cls.ink for kind, cls in built_in().kinds(MethodPlugin).items() if cls.ink is not None}
    kinds: dict[str, str] = {}
    for view in views:
        of_kind |= view.inks
        for cell in view.cells:
            kinds.setdefault(cell.label, cell.kind)
    own: dict[str, str] = {}  # kind to the label that has its ink
    for label, kind in sorted(kinds.items(), key=lambda item: item[0] != item[1]):
        if kind in of_kind:
            own.setdefault(kind, label)
    found: dict[str, Ink] = {}
    markers, colours = Counter[str](), Counter[tuple[str, str]]()
    for label in dict.fromkeys([*own.values(), *kinds]):
        if own.get(kinds[label]) == label:
            ink = of_kind[kinds[label]]
            marker = ink.marker if not markers[ink.marker] else min(MARKERS, key=lambda each: markers[each])
            ink = replace(ink, marker=marker)
        else:
            marker = min(MARKERS, key=lambda each: markers[each])
            light, dark = min(_SPARE, key=lambda each: colours[each])
            colours[light, dark] += 1
            ink = Ink(light, dark, marker)
        markers[marker] += 1
        found[label] = ink
    return found
