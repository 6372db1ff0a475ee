"""Figures as JSON for the page's script."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bnpbench.report.figures import Curve, Figure, ForestPanel, Ink, Panel
from bnpbench.report.figures.model import Axis, Row
from bnpbench.text import plain

_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "p": "pentagon",
    "h": "hexagon",
    "H": "hexagon2",
    "<": "triangle-left",
    ">": "triangle-right",
    "*": "star",
    "d": "diamond-tall",
    "8": "octagon",
}


def script_json(data: Any) -> Markup:
    """JSON that is safe between script tags: no ``<``, ``>`` or ``&`` is left, whatever the texts hold."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def method_data(inks: Mapping[str, Ink]) -> list[dict[str, str]]:
    """Label, colours and symbol of each method."""
    return [
        {"label": plain(label), "light": ink.light, "dark": ink.dark, "symbol": _SYMBOLS.get(ink.marker, "circle")}
        for label, ink in inks.items()
    ]


def figure_data(figure: Figure, methods: Sequence[str]) -> dict[str, Any]:
    """A figure's panels; methods by their place in the list of all."""
    panels = [
        _forest(panel) if isinstance(panel, ForestPanel) else _panel(panel, methods, figure) for panel in figure.panels
    ]
    return {"kind": figure.kind, "title": plain(figure.title), "shared": figure.shared, "panels": panels}


def _panel(panel: Panel, methods: Sequence[str], figure: Figure) -> dict[str, Any]:
    return {
        "title": plain(panel.title),
        "x": _axis(panel.x),
        "y": _axis(panel.left),
        "y2": _axis(panel.right) if panel.right else None,
        "curves": [_curve(curve, methods) for curve in panel.curves],
        "marks": [{"x": _rounded(mark.x), "text": mark.text} for mark in panel.marks],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"label": plain(axis.label), "log": axis.log, "whole": axis.whole, "at": list(axis.at)}


def _curve(curve: Curve, methods: Sequence[str]) -> dict[str, Any]:
    return {
        "method": methods.index(curve.method),
        "quantity": curve.quantity,
        "x": _numbers(curve.x),
        "y": _numbers(curve.y),
        "low": _numbers(curve.low) if curve.low != curve.high else None,
        "high": _numbers(curve.high) if curve.low != curve.high else None,
        "dashed": curve.dashed,
        "right": curve.right,
        "bars": curve.spread == "bars",
    }


def _forest(panel: ForestPanel) -> dict[str, Any]:
    return {"axis": _axis(panel.axis), "rows": [_row(row) for row in panel.rows]}


def _row(row: Row) -> dict[str, Any]:
    return {
        "says": plain(row.says),
        "detail": plain(row.detail),
        "outcome": row.outcome,
        "value": _rounded(row.value) if math.isfinite(row.value) else None,
        "sign": math.copysign(1, row.value),
        "low": _bound(row.low),
        "high": _bound(row.high),
        "bounds": [_bound(bound) for bound in row.bounds],
        "text": f"{row.value_text} {row.interval_text}".strip(),
    }


def _bound(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else _rounded(value)


def _numbers(values: Iterable[float]) -> list[float]:
    return list(map(_rounded, values))


def _rounded(value: float) -> float:
    """Five digits are more than a screen shows."""
    number = float(f"{value:.5g}")
    return int(number) if number.is_integer() and abs(number) < 1e9 else number
