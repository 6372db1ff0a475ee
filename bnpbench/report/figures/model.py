"""Figures as data: what is drawn, before matplotlib or a browser draws it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bnpbench.report.claims import Outcome

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
    """

    label: str
    log: bool = False
    whole: bool = False
    at: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A line, or single points, with its spread.

    Attributes:
        method: label of the method; gives the colour.
        quantity: what y is.
        x, y: the points; all finite.
        low, high: the spread at each point, equal to y where there is none.
        dashed: the style of the line.
        right: whether y belongs to the right axis.
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
    right: bool = False
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
        x, left: its axes.
        curves: at least one.
        right: a second y axis, for the curves that ask for it.
        marks: vertical lines.
    """

    title: str
    x: Axis
    left: Axis
    curves: tuple[Curve, ...]
    right: Axis | None = None
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
class Figure:
    """What one file shows.

    Attributes:
        name: of the file, without folder and extension; only letters, digits, ``-``, ``_`` and ``.``.
        suite, environment: what it was measured with.
        kind: ``training``, ``conditioning``, ``cumulative-time``, ``step-time``, ``cost``, ``claims``.
        title: heading.
        panels: at least one.
        notes: what a reader must know, one sentence each.
        shared: whether all panels have the same y axes.
    """

    name: str
    suite: str
    environment: str
    kind: str
    title: str
    panels: tuple[Panel, ...] | tuple[ForestPanel, ...]
    notes: tuple[str, ...] = ()
    shared: bool = field(default=False)

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the methods drawn, in order of appearance."""
        curves = (curve for panel in self.panels if isinstance(panel, Panel) for curve in panel.curves)
        return tuple(dict.fromkeys(curve.method for curve in curves))
