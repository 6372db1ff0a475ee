"""Figures as SVG, PDF and PNG with their captions, by matplotlib without a display.

The same figure gives the same bytes: no date, no random names. Glyphs are outlines of matplotlib's own
font. What comes from files is drawn letter by letter, never as mathematics (``text.parse_math``).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib.style
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from bnpbench.errors import BnpbenchError
from bnpbench.files import fresh
from bnpbench.methods.base import Ink
from bnpbench.report.data import views
from bnpbench.report.figures import figures
from bnpbench.report.figures.model import Axis, Cross, CrossPanel, Curve, Figure, ForestPanel, Mark, Panel, Row, inks
from bnpbench.report.tables.summary import ran
from bnpbench.results import Results
from bnpbench.text import plain

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WIDTH = 7.0  # inches: the width of a page's text
PANEL_HEIGHT = 2.1
DPI = 200
FONT = 8.5  # points; 7 where said
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": FONT,
    "axes.spines.top": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "svg.fonttype": "path",
    "pdf.compression": 9,
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """The look of all figures, whatever the user's matplotlibrc says; ``name`` seeds the names inside the SVG."""
    with matplotlib.style.context(["default", _STYLE | {"svg.hashsalt": name}], after_reset=True):
        yield


def draw_panels(figure: Figure, inks: Mapping[str, Ink]) -> Canvas:
    """Draws a figure of panels; call it, and save what it returns, under :func:`style`."""
    panels = [panel for panel in figure.panels if not isinstance(panel, ForestPanel)]
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    canvas = _new_canvas(WIDTH, 1.0)
    grid = canvas.subplots(rows, columns, squeeze=False)
    cells = list(grid.flat)
    for place in cells[len(panels) :]:
        place.remove()
    pairs = list(zip(panels, cells, strict=False))
    for panel, axes in pairs:
        if isinstance(panel, CrossPanel):
            _crosses(axes, panel, inks)
        else:
            _panel(axes, panel, inks)
        _name(axes, panel, WIDTH / columns - 0.6)
    if figure.shared:
        _share_limits(pairs)
    for panel, axes in pairs:
        scale(axes, "x", panel.x)
        scale(axes, "y", panel.y)
    if figure.shared:
        _label_outside(pairs, columns)
    of_crosses = isinstance(panels[0], CrossPanel)
    height = rows * PANEL_HEIGHT * (1.0 if len(panels) > 1 else 1.6 if of_crosses else 1.2)
    _finish(canvas, figure, height, _handles(figure, inks))
    canvas.draw_without_rendering()  # lays out, once for all formats
    canvas.set_layout_engine("none")
    for panel, axes in pairs:
        place = axes.get_position().bounds  # the layout's solver does not give its last digits the same every time
        axes.set_position((round(place[0], 6), round(place[1], 6), round(place[2], 6), round(place[3], 6)))
        if isinstance(panel, CrossPanel):
            _label_crosses(axes, panel, inks)
    return canvas


def _new_canvas(width: float, height: float) -> Canvas:
    """An empty figure in inches."""
    canvas = Canvas(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(canvas)
    return canvas


def _finish(canvas: Canvas, figure: Figure, height: float, handles: Sequence[Artist] = ()) -> Canvas:
    """Adds title, legend and notes above and below what is ``height`` inches high, each in room of its own."""
    lines = [line for note in figure.notes for line in wrapped(note, WIDTH - 0.2, 7, 3)]
    foot = 0.14 * len(lines) + 0.1
    canvas.set_size_inches(WIDTH, height + 3)
    legend_height = _legend(canvas, handles)
    head = wrapped(figure.title, WIDTH / 1.15 - 0.2, 9.5, 2)
    total = 0.17 * len(head) + 0.1 + height + legend_height + foot
    canvas.set_size_inches(WIDTH, total)
    for legend in canvas.legends:
        legend.set_bbox_to_anchor((0.5, foot / total), transform=canvas.transFigure)
    text: dict[str, Any] = {"ha": "left", "linespacing": 1.25}
    canvas.text(0.01, 1 - 0.06 / total, "\n".join(head), va="top", fontsize=9.5, weight="bold", **text)
    canvas.text(0.01, 0.05 / total, "\n".join(lines), va="bottom", fontsize=7, color="#444444", **text)
    bottom = (foot + legend_height) / total
    canvas.set_layout_engine("constrained", rect=(0.005, bottom, 0.99, height / total), w_pad=0.06, h_pad=0.06)
    return canvas


def _head_height(canvas: Canvas) -> float:
    """Inches that the title takes of a finished figure."""
    return 0.17 * (canvas.texts[0].get_text().count("\n") + 1) + 0.1


def drawable(text: str) -> str:
    """Text whose every letter the font has: no control characters, others as ``\\uXXXX``."""
    return "".join(
        letter if letter == "\n" or ord(letter) in _glyphs() else f"\\u{ord(letter):04x}" for letter in plain(text)
    )


def wrapped(text: str, width: float, size: float, most: int) -> list[str]:
    """Lines of at most so many inches, in a font of so many points; what does not fit ends in ``…``."""
    letters = drawable(text)[: 400 * most]
    columns = max(4, int(width / inches("n", size) * 1.2))
    while True:
        lines = textwrap.wrap(letters, columns, max_lines=most, placeholder=" …", break_on_hyphens=False)
        if columns <= 4 or all(inches(line, size) <= width for line in lines):
            return lines
        columns -= max(1, columns // 20)


def shortened(text: str, width: float, size: float = FONT) -> str:
    """A label of at most so many inches."""
    return "".join(wrapped(text, width, size, 1))


def inches(text: str, size: float) -> float:
    """How wide a line is in a font of so many points."""
    font = get_font(findfont("DejaVu Sans", fallback_to_default=True))
    font.set_size(size, DPI)  # at few dots an inch each letter is rounded up to whole ones
    font.set_text(text, 0.0)
    return float(font.get_width_height()[0]) / 64 / DPI


def scale(axes: Axes, which: Literal["x", "y"], axis: Axis) -> None:
    """Makes an axis logarithmic or not, with ticks that are numbers, not powers."""
    side = getattr(axes, f"{which}axis")
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
        low, high = sorted(getattr(axes, f"get_{which}lim")())
        decades = math.log10(high / low)
        if decades > 0.7:
            subs = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)
            side.set_major_locator(ticker.LogLocator(subs=subs, numticks=6))
        else:
            side.set_major_locator(ticker.MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        side.set_minor_locator(ticker.NullLocator())
        side.set_major_formatter(ticker.FuncFormatter(lambda number, _: _tick(number)))
    else:
        side.set_major_locator(ticker.MaxNLocator(nbins=5, integer=axis.whole, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10]))
        side.set_major_formatter(ticker.FuncFormatter(lambda number, _: _tick(number)))
    if axis.at:
        side.set_major_locator(ticker.FixedLocator(_spaced(axis.at) if axis.log else axis.at))


def _tick(number: float) -> str:
    """``0.25``, ``10⁵``, ``2·10⁵``."""
    if number == 0 or 1e-3 <= abs(number) < 1e4:
        return f"{number:.10g}".replace("-", "−")
    mantissa, exponent = f"{number:.5e}".split("e")
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    factor = f"{float(mantissa):g}".replace("-", "−")
    return power if factor == "1" else f"{factor}·{power}"


def _spaced(values: Sequence[float], least: float = 0.09) -> list[float]:
    """The values that stand far enough from the one before, as a share of the (logarithmic) axis."""
    ordered = sorted(values)
    whole = math.log(ordered[-1] / ordered[0]) or 1.0
    kept = ordered[:1]
    for value in ordered[1:]:
        if math.log(value / kept[-1]) >= least * whole:
            kept.append(value)
    return kept


def _panel(axes: Axes, panel: Panel, inks: Mapping[str, Ink]) -> None:
    methods = list(dict.fromkeys(curve.method for curve in panel.curves))
    for curve in panel.curves:
        offset = methods.index(curve.method) - (len(methods) - 1) / 2 if curve.spread == "bars" else 0.0
        _curve(axes, curve, inks[curve.method], 1.02**offset)
    for mark in panel.marks:
        axes.axvline(mark.x, color="#555555", linewidth=1, linestyle=_mark_style(mark), zorder=1)
    if panel.x.log:
        xs = [x for curve in panel.curves for x in curve.x]
        pad = max((max(xs) / min(xs)) ** 0.06, 1.25)
        axes.set_xscale("log")
        axes.set_xlim(min(xs) / pad, max(xs) * pad)
    if panel.y.log:
        axes.set_yscale("log")


def _name(axes: Axes, panel: Panel | CrossPanel, width: float) -> None:
    """Title and labels, in the width that the axes have."""
    axes.set_title(shortened(panel.title, 1.9))
    axes.set_xlabel("\n".join(wrapped(panel.x.label, width, FONT, 2)))
    axes.set_ylabel("\n".join(wrapped(panel.y.label, 0.8 * PANEL_HEIGHT, FONT, 2)))
    axes.spines["right"].set_visible(False)


def _crosses(axes: Axes, panel: CrossPanel, inks: Mapping[str, Ink]) -> None:
    """The points with the arms that they have; the baseline where its two lines meet, and the front."""
    thin: dict[str, Any] = {"color": "#555555", "linewidth": 0.8, "zorder": 1}
    if panel.base is not None:
        axes.axvline(1.0, **thin)
        axes.axhline(0.0, **thin)
        ink = inks[panel.base]
        axes.plot([1.0], [0.0], linestyle="", marker=ink.marker, color=ink.light, markersize=6, zorder=3)
    if panel.front:
        axes.plot(*zip(*panel.front, strict=True), **thin, linestyle="--")
    for cross in panel.crosses:
        ink = inks[cross.method]
        arm: dict[str, Any] = {"color": ink.light, "linewidth": 1.1, "solid_capstyle": "butt", "zorder": 2}
        if cross.x_interval is not None:
            axes.plot(cross.x_interval, [cross.y] * 2, **arm)
        if cross.y_interval is not None:
            axes.plot([cross.x] * 2, cross.y_interval, **arm)
        face = "white" if cross.open else ink.light
        axes.plot(
            [cross.x],
            [cross.y],
            linestyle="",
            marker=ink.marker,
            color=ink.light,
            markerfacecolor=face,
            markersize=6,
            zorder=4,
        )
    for which, axis in (("x", panel.x), ("y", panel.y)):
        if axis.log:
            getattr(axes, f"set_{which}scale")("log")
        if axis.limits is not None:
            getattr(axes, f"set_{which}lim")(*axis.limits)


_BESIDE = ((1, 1), (-1, 1), (1, -1), (-1, -1))  # the quarters in which a label may stand, in this order
_Box = tuple[float, float, float, float]  # left, bottom, right, top


def _label_crosses(axes: Axes, panel: CrossPanel, inks: Mapping[str, Ink]) -> None:
    """The batch sizes beside the points, each in a quarter that no other label or point touches, and few arms."""
    frame, size, dot = axes.bbox, 7.0, DPI / 72
    points = [axes.transData.transform((cross.x, cross.y)) / dot for cross in panel.crosses]
    bases = [] if panel.base is None else [axes.transData.transform((1.0, 0.0)) / dot]
    taken: list[_Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in (*points, *bases)]
    arms = [_arm(axes, ends, dot) for cross in panel.crosses for ends in _ends(cross)]
    edges = frame.x0 / dot, frame.y0 / dot, frame.x1 / dot, frame.y1 / dot
    for cross, (x, y) in zip(panel.crosses, points, strict=True):
        wide = inches(cross.label, size) * 72
        boxes = [
            (side, _beside(x, y, *side, wide, 1.2 * size, far)) for far in (0, 1) for side in _BESIDE if cross.label
        ]
        free = [
            (side, box)
            for side, box in boxes
            if _touch(box, edges, whole=True) and not any(_touch(box, other) for other in taken)
        ]
        if free:
            (right, _), box = min(free, key=lambda one: sum(_touch(one[1], arm) for arm in arms))  # the nearer first
            taken.append(box)
            axes.annotate(
                cross.label,
                (cross.x, cross.y),
                ((box[0] if right > 0 else box[2]) - x, (box[1] + box[3]) / 2 - y),
                textcoords="offset points",
                fontsize=size,
                color=inks[cross.method].light,
                ha="left" if right > 0 else "right",
                va="center",
                zorder=5,
                path_effects=[withStroke(linewidth=2, foreground="white")],  # arms cross it
            )


def _ends(cross: Cross) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The two ends of each arm."""
    if cross.x_interval is not None:
        yield (cross.x_interval[0], cross.y), (cross.x_interval[1], cross.y)
    if cross.y_interval is not None:
        yield (cross.x, cross.y_interval[0]), (cross.x, cross.y_interval[1])


def _arm(axes: Axes, ends: tuple[tuple[float, float], tuple[float, float]], dot: float) -> _Box:
    """The box of an arm, in points of 1/72 inch."""
    (x0, y0), (x1, y1) = (axes.transData.transform(end) / dot for end in ends)
    return x0, y0 - 0.5, x1 + 0.5, y1


def _beside(x: float, y: float, right: int, up: int, wide: float, high: float, far: int) -> _Box:
    """The box of a label in one quarter of a point, in points of 1/72 inch."""
    left = x + 3 if right > 0 else x - 3 - wide
    bottom = y + 1.5 + far * high if up > 0 else y - 1.5 - (far + 1) * high
    return left, bottom, left + wide, bottom + high


def _touch(one: _Box, other: _Box, *, whole: bool = False) -> bool:
    """Whether they overlap, or the first lies in the other as a whole."""
    if whole:
        return one[0] >= other[0] and one[2] <= other[2] and one[1] >= other[1] and one[3] <= other[3]
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _curve(axes: Axes, curve: Curve, ink: Ink, shift: float) -> None:
    line: dict[str, Any] = {"color": ink.light, "linestyle": "--" if curve.dashed else "-", "marker": ink.marker}
    if curve.spread == "bars":
        below = [max(0.0, y - low) for y, low in zip(curve.y, curve.low, strict=True)]
        above = [max(0.0, high - y) for y, high in zip(curve.y, curve.high, strict=True)]
        axes.errorbar(
            [x * shift for x in curve.x], curve.y, [below, above], capsize=2, capthick=1, elinewidth=1, **line
        )
        return
    axes.plot(curve.x, curve.y, markevery=max(1, len(curve.x) // 6), markeredgewidth=0, **line)
    if curve.low != curve.high:
        axes.fill_between(curve.x, curve.low, curve.high, color=ink.light, alpha=0.15, linewidth=0)


def _share_limits(pairs: Sequence[tuple[Panel | CrossPanel, Axes]]) -> None:
    """The same limits for panels of the same quantity."""
    for label in {panel.y.label for panel, _ in pairs}:
        alike = [axes for panel, axes in pairs if panel.y.label == label]
        limits = [axes.get_ylim() for axes in alike]
        for axes in alike:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _label_outside(pairs: Sequence[tuple[Panel | CrossPanel, Axes]], columns: int) -> None:
    """Numbers and label of a y axis only where the panel to the left has another."""
    for place, (panel, axes) in enumerate(pairs):
        if place % columns and pairs[place - 1][0].y.label == panel.y.label:
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")


def _handles(figure: Figure, inks: Mapping[str, Ink]) -> list[Artist]:
    panels = [panel for panel in figure.panels if isinstance(panel, Panel)]
    crossed = [panel for panel in figure.panels if isinstance(panel, CrossPanel)]
    bases = {panel.base for panel in crossed}
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            color=inks[method].light,
            marker=inks[method].marker,
            markeredgewidth=0,
            linestyle="" if crossed else "-",
            markersize=6 if crossed else 4,
            label=shortened(method, 3.0) + (" (baseline)" if method in bases else ""),
        )
        for method in figure.methods
    ]
    mixed = [panel for panel in panels if len({curve.dashed for curve in panel.curves}) > 1]
    if styles := {curve.quantity: curve.dashed for panel in mixed for curve in panel.curves}:
        handles += [
            Line2D([], [], color="#555555", linestyle="--" if dashed else "-", label=quantity)
            for quantity, dashed in styles.items()
        ]
    marks = {mark.text: mark for panel in panels for mark in panel.marks}
    handles += [
        Line2D([], [], color="#555555", linewidth=1, linestyle=_mark_style(mark), label=f"crossing, {mark.text}")
        for mark in marks.values()
    ]
    if any(panel.front for panel in crossed):
        handles.append(Line2D([], [], color="#555555", linewidth=0.8, linestyle="--", label="front"))
    if figure.spread:
        band = not crossed and all(curve.spread == "band" for panel in panels for curve in panel.curves)
        grey, label = "#555555", shortened(figure.spread, 3.0)
        mark = {"marker": "+" if crossed else "|", "markersize": 9, "markeredgewidth": 1, "linestyle": ""}
        handles.append(
            Patch(color=grey, alpha=0.15, linewidth=0, label=label)
            if band
            else Line2D([], [], color=grey, label=label, **mark)  # type: ignore[arg-type]
        )
    return handles


def _mark_style(mark: Mark) -> Literal[":", "-."] | tuple[float, Sequence[float]]:
    if mark.text == "predicted":
        return ":"
    return "-." if mark.text == "counted" else (0, (6, 2))


def _legend(canvas: Canvas, handles: Sequence[Artist]) -> float:
    """Adds the legend in as many columns as the width has room for; its height in inches."""
    for columns in range(min(6, len(handles)), 0, -1):
        legend = canvas.legend(
            handles=handles,
            loc="lower center",
            ncols=columns,
            frameon=False,
            borderaxespad=0,
            borderpad=0.2,
            handlelength=2.6,
            columnspacing=1.4,
        )
        box = legend.get_window_extent(canvas.canvas.get_renderer())  # type: ignore[attr-defined]
        if box.width <= 0.97 * canvas.bbox.width or columns == 1:
            return float(box.height / canvas.dpi) + 0.08
        legend.remove()
    return 0.0


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans", fallback_to_default=True)).get_charmap())


# --- claims: words on the left, intervals in the middle, verdicts on the right --------------

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
    canvas = _finish(_new_canvas(WIDTH, height), figure, height)
    canvas.set_layout_engine("none")
    total = canvas.get_figheight()
    top = total - _head_height(canvas)
    for panel, rows, lines in zip(panels, heights, words, strict=True):
        body = sum(rows)
        axes = canvas.add_axes((_LEFT / WIDTH, (top - body) / total, (WIDTH - _LEFT - _RIGHT) / WIDTH, body / total))
        _forest_panel(axes, panel, rows, lines)
        top -= body + _AXIS
    return canvas


def _forest_panel(axes: Axes, panel: ForestPanel, heights: Sequence[float], words: Sequence[list[str]]) -> None:
    low, high = limits = panel.axis.limits or axes.get_xlim()
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
        _row(axes, row, middle + height / 2, height, lines, limits)
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


# --- files --------------------------------------------------------------------------------


def write_figures(results: Results, folder: Path, *, every: bool = False) -> list[Path]:
    """Writes the figures of the results, and returns the files; others in the folder stay.

    Each as SVG, PDF and PNG, with a text file of the same name: title, notes, and what was run where.

    Args:
        results: what was read.
        folder: where the files go.
        every: as of :func:`bnpbench.report.figures.figures`.

    Raises:
        BnpbenchError: the folder cannot be written.
    """
    seen = views(results)
    colours = inks(seen)
    origins = {(view.suite, view.id): ran(view).lines for view in seen}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            path
            for figure in figures(seen, every=every)
            for path in _write(figure, colours, origins[figure.suite, figure.environment], folder)
        ]
    except OSError as error:
        raise BnpbenchError(f"--figures {folder}: cannot be written ({error.strerror or error})") from error


def canvas(figure: Figure, colours: Mapping[str, Ink]) -> Canvas:
    """The figure as matplotlib has it, under the figures' style."""
    return draw_forest(figure) if figure.kind == "claims" else draw_panels(figure, colours)


def caption(figure: Figure, origin: Sequence[str]) -> str:
    """Title, notes, and where the numbers come from, as text."""
    parts = [figure.title, *figure.notes, "", f"suite: {figure.suite}", *origin]
    return "".join(f"{plain(part)}\n" for part in parts)


def _write(figure: Figure, colours: Mapping[str, Ink], origin: Sequence[str], folder: Path) -> list[Path]:
    with style(figure.name):
        drawn = canvas(figure, colours)
        title, notes = f"{plain(figure.suite)}: {plain(figure.title)}", " ".join(map(plain, figure.notes))
        saved: dict[str, dict[str, Any]] = {
            "svg": {"Date": None, "Creator": "bnpbench", "Title": title, "Description": notes},
            "pdf": {"CreationDate": None, "Creator": "bnpbench", "Producer": None, "Title": title, "Subject": notes},
            "png": {"Software": None, "Title": title},
        }
        paths = []
        for extension in (*saved, "txt"):
            path = folder / f"{figure.name}.{extension}"
            temporary = fresh(folder / f".{figure.name}.tmp")
            if extension in saved:
                drawn.savefig(temporary, format=extension, dpi=DPI, metadata=saved[extension])
            else:
                temporary.write_text(caption(figure, origin), encoding="utf-8")
            temporary.replace(path)
            paths.append(path)
    return paths
