"""What the page is given: figures as JSON for its script, and links to the files it was made from."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from markupsafe import Markup

from bnpbench.cache import expanded
from bnpbench.methods.base import Ink
from bnpbench.report.data import View
from bnpbench.report.figures.model import Axis, Cross, CrossPanel, Curve, Figure, ForestPanel, Panel, Row
from bnpbench.results.schema import SCHEMAS
from bnpbench.results.store import folder_name
from bnpbench.text import plain

_MOST_CELLS = 1000  # with more, only the folders are linked
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


def script_json(data: object) -> Markup:
    """JSON that is safe between script tags: no ``<``, ``>`` or ``&`` is left, whatever the texts hold."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def method_data(inks: Mapping[str, Ink]) -> list[dict[str, str]]:
    """Label, colours and symbol of each method."""
    return [
        {"label": plain(label), "light": ink.light, "dark": ink.dark, "symbol": _SYMBOLS.get(ink.marker, "circle")}
        for label, ink in inks.items()
    ]


def figure_data(figure: Figure, methods: Sequence[str]) -> dict[str, object]:
    """A figure's panels; methods by their place in the list of all."""
    return {
        "kind": figure.kind,
        "title": plain(figure.title),
        "shared": figure.shared,
        "spread": plain(figure.spread),
        "panels": [_any_panel(panel, methods) for panel in figure.panels],
    }


def _any_panel(panel: Panel | CrossPanel | ForestPanel, methods: Sequence[str]) -> dict[str, object]:
    if isinstance(panel, ForestPanel):
        return _forest(panel)
    made = {"title": plain(panel.title), "x": _axis(panel.x), "y": _axis(panel.y)}
    if isinstance(panel, CrossPanel):
        crosses = [_cross(cross, methods) for cross in panel.crosses]
        base = None if panel.base is None else methods.index(panel.base)
        front = {"front": list(map(_numbers, panel.front))} if panel.front else {}
        return {**made, "base": base, "crosses": crosses, **front}
    curves = [_curve(curve, methods) for curve in panel.curves]
    return {**made, "curves": curves, "marks": [{"x": _rounded(mark.x), "text": mark.text} for mark in panel.marks]}


def _axis(axis: Axis) -> dict[str, object]:
    limits = None if axis.limits is None else list(axis.limits)
    return {"label": plain(axis.label), "log": axis.log, "whole": axis.whole, "at": list(axis.at), "limits": limits}


def _cross(cross: Cross, methods: Sequence[str]) -> dict[str, object]:
    return {
        "method": methods.index(cross.method),
        "label": plain(cross.label),
        "x": _rounded(cross.x),
        "y": _rounded(cross.y),
        "xs": None if cross.x_interval is None else _numbers(cross.x_interval),
        "ys": None if cross.y_interval is None else _numbers(cross.y_interval),
    }


def _curve(curve: Curve, methods: Sequence[str]) -> dict[str, object]:
    return {
        "method": methods.index(curve.method),
        "quantity": curve.quantity,
        "x": _numbers(curve.x),
        "y": _numbers(curve.y),
        "low": _numbers(curve.low) if curve.low != curve.high else None,
        "high": _numbers(curve.high) if curve.low != curve.high else None,
        "dashed": curve.dashed,
        "bars": curve.spread == "bars",
    }


def _forest(panel: ForestPanel) -> dict[str, object]:
    return {"axis": _axis(panel.axis), "rows": [_row(row) for row in panel.rows]}


def _row(row: Row) -> dict[str, object]:
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


# --- links from the page to the Parquet files it was made from -------------------------------


@dataclass(frozen=True)
class Raw:
    """The measured cells of one suite and environment, with their files.

    Attributes:
        columns, rows: a table of them.
        links: for each row the name and relative address of each file.
        merged: files that hold many cells, and folders.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    links: tuple[tuple[tuple[str, str], ...], ...] = ()
    merged: tuple[tuple[str, str], ...] = ()


def raw_files(view: View, folders: Sequence[Path], base: Path) -> Raw:
    """What to link to; nothing where the way from the page to the files would name a home directory."""
    places = [place for folder in folders for place in _places(view, folder)]
    addressed = [(place, address) for place in places if (address := _address(place, base)) is not None]
    if not addressed:
        return Raw()
    cells = [cell for cell in (*view.cells, *view.trials, *view.strays) if cell.row]
    merged = [
        (f"{kind}.parquet", f"{address}/{kind}.parquet")
        for place, address in addressed
        for kind in SCHEMAS
        if (place / f"{kind}.parquet").is_file()
    ]
    if len(cells) > _MOST_CELLS:
        return Raw(merged=tuple(merged + [("folder of all files", f"{address}/") for _, address in addressed]))
    there = {
        (kind, name.removesuffix(".parquet")): f"{address}/{kind}/{name}"
        for place, address in addressed
        for kind in SCHEMAS
        for name in _listed(place / kind)
    }
    return Raw(
        ("method", "N", "seed", "status", "key"),
        tuple((cell.label, str(cell.batch_size), str(cell.seed), cell.status, cell.key) for cell in cells),
        tuple(tuple((kind, there[kind, cell.key]) for kind in SCHEMAS if (kind, cell.key) in there) for cell in cells),
        tuple(merged),
    )


def _places(view: View, folder: Path) -> Iterable[Path]:
    """The environment's folder, in a folder of suites or in the suite's own."""
    for suite in (folder, folder / folder_name(view.suite)):
        if unquote(suite.resolve().name) == view.suite and (place := suite / view.id).is_dir():
            yield place


def _address(place: Path, base: Path) -> str | None:
    here, there, home = base.resolve(), place.resolve(), expanded("~")
    shared = Path(os.path.commonpath([here, there]))
    if shared != home and home.is_relative_to(shared):
        return None  # a user's name would stand in the page
    return quote(Path(os.path.relpath(there, here)).as_posix(), safe="/.")


def _listed(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.endswith(".parquet") and not name.startswith("."))
