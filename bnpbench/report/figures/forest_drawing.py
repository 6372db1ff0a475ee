"""A forest plot by matplotlib: words on the left, intervals in the middle, verdicts on the right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from bnpbench.report.figures.drawing import WIDTH, finish, head_height, new_canvas, scale, shortened, wrapped
from bnpbench.report.figures.model import Figure, ForestPanel, Row

_LEFT, _RIGHT = 3.0, 1.75  # inches for words, for verdicts
_SIZE = 7.5  # points, of the text
_LINE = 0.14  # inches, of a row's text
_GAP = 0.1  # between rows
_AXIS = 0.52  # below each panel: ticks and label
_INK = "#222222"
_MARKERS = {"holds": ("o", _INK), "fails": ("X", _INK), "undecided": ("o", "white"), "no data": ("o", "white")}


def draw_forest(figure: Figure) -> Canvas:
    """Draws claims; call it, and save what it returns, under the figures' style."""
    panels = [panel for panel in figure.panels if isinstance(panel, ForestPanel)]
    words = [
        [
            [*wrapped(row.says, _LEFT - 0.25, _SIZE, 3), *wrapped(row.detail, _LEFT - 0.25, _SIZE, 2)]
            for row in panel.rows
        ]
        for panel in panels
    ]
    heights = [[_LINE * max(2, len(lines)) + _GAP for lines in rows] for rows in words]
    height = sum(sum(rows) + _AXIS for rows in heights)
    canvas = finish(new_canvas(WIDTH, height), figure, height)
    canvas.set_layout_engine("none")
    total = canvas.get_figheight()
    top = total - head_height(canvas)
    for panel, rows, lines in zip(panels, heights, words, strict=True):
        body = sum(rows)
        axes = canvas.add_axes((_LEFT / WIDTH, (top - body) / total, (WIDTH - _LEFT - _RIGHT) / WIDTH, body / total))
        _panel(axes, panel, rows, lines)
        top -= body + _AXIS
    return canvas


def _panel(axes: Axes, panel: ForestPanel, heights: Sequence[float], words: Sequence[list[str]]) -> None:
    low, high = _limits(panel)
    if panel.axis.log:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(sum(heights), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.spines["right"].set_visible(False)
    axes.grid(False, axis="y")
    scale(axes, "x", panel.axis)
    axes.set_xlabel(shortened(panel.axis.label, WIDTH - _LEFT - _RIGHT))
    middle = 0.0
    for row, height, lines in zip(panel.rows, heights, words, strict=True):
        _row(axes, row, middle + height / 2, height, lines, (low, high))
        middle += height


def _row(axes: Axes, row: Row, y: float, height: float, lines: list[str], limits: tuple[float, float]) -> None:
    low, high = limits
    asked = [min(max(bound, low), high) for bound in row.bounds]
    axes.fill_between(asked, y - 0.42 * height, y + 0.42 * height, color="#cfe3f3", linewidth=0, zorder=0.5)
    for bound in row.bounds:
        if low <= bound <= high:
            axes.plot([bound] * 2, [y - 0.42 * height, y + 0.42 * height], color="#4a86b8", linewidth=1)
    if row.low is not None and row.high is not None:
        ends = [min(max(end, low), high) for end in (row.low, row.high)]
        axes.plot(ends, [y, y], color=_INK, linewidth=1.6, solid_capstyle="butt")
        for end, there in zip(ends, (row.low, row.high), strict=True):
            if end == there:
                axes.plot([end] * 2, [y - 0.045, y + 0.045], color=_INK, linewidth=1.2)
    marker, fill = _MARKERS[row.outcome]
    value = min(max(row.value, low), high)
    if value != row.value:
        marker = ">" if row.value > high else "<"
    axes.plot([value], [y], marker=marker, color=_INK, markerfacecolor=fill, markersize=6, clip_on=False, zorder=5)
    text: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": _SIZE}
    axes.text(-0.06, y, "\n".join(lines), ha="right", **text)
    axes.text(
        1.06,
        y,
        "\n".join(
            shortened(text, _RIGHT - 0.2, _SIZE) for text in (f"{row.outcome}: {row.value_text}", row.interval_text)
        ),
        ha="left",
        **text,
    )


def _limits(panel: ForestPanel) -> tuple[float, float]:
    """Room for all that is finite, and for a bound to have two sides."""
    numbers = [n for row in panel.rows for n in (row.value, row.low, row.high, *row.bounds) if n is not None]
    known = [number for number in numbers if math.isfinite(number)] or [0.0, 1.0]
    if panel.axis.log:
        known = [number for number in known if number > 0]  # an interval may reach below: cut at the edge
        low, high = math.log(min(known)), math.log(max(known))
        pad = 0.12 * (high - low) or 0.1
        return math.exp(low - pad), math.exp(high + pad)
    low, high = min(known), max(known)
    if panel.axis.label.startswith("reached"):  # a share of seeds
        return min(low, 0.0) - 0.05, max(high, 1.0) + 0.05
    pad = 0.12 * (high - low) or 0.12 * abs(high) or 0.1
    return low - pad, high + pad
