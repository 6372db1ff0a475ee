"""What ``[select]`` chose: the best value for each method and batch size, and how flat the optimum is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bnpbench.report.cells import Place, published
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.groups import Group, Layout, layout
from bnpbench.report.text import DASH, dash, fixed
from bnpbench.report.view import Cell, View
from bnpbench.results import setting, told

FLAT = 0.01  # values whose accuracy is at most so far below the best are as good


def selection(view: View) -> Section | None:
    """One table a group of trials; None for a suite that chooses nothing."""
    select = view.document.get("select")
    if not select or not view.trials:
        return None
    over, by = str(select["over"]), str(select["by"])
    arranged = layout(view.trials)
    others = Layout(view.trials, {path: values for path, values in arranged.differing.items() if path != over})
    tables = tuple(_table(view, group, over, by) for group in others.groups)
    return Section(f"Best {over}", tables=tables)


def _table(view: View, group: Group, over: str, by: str) -> Table:
    values = sorted({setting(cell.settings, over) for cell in group.cells}, key=float)
    columns = ("method", "N", "best", "published", f"within {FLAT:g} of the best", *(told(value) for value in values))
    rows, records = [], list[Record]()
    for batch_size in group.batch_sizes:
        for method in group.methods:
            if cells := group.at(method, batch_size):
                place = Place(f"best {over}", group.title, method, batch_size)
                found = {setting(cell.settings, over): cell for cell in cells}
                texts, record = _row(view, place, found, by)
                reference = published(view, cells, over) or dash()
                each = [_score_told(view, found.get(value), by) for value in values]
                rows.append((method, str(batch_size), texts[0], reference, texts[1], *each))
                records.append(record)
    note = f"Last {by} of one seed at each {over}; the best is trained on the whole training set for the tables below."
    return Table(group.title, columns, tuple(rows), (note,), tuple(records))


def _row(view: View, place: Place, cells: Mapping[Any, Cell], by: str) -> tuple[tuple[str, str], Record]:
    scores = {value: score for value, cell in cells.items() if (score := _score(view, cell, by)) is not None}
    if not scores:
        text, record = place.empty(place.table, ", ".join(dict.fromkeys(cell.status for cell in cells.values())))
        return (text, dash()), record
    best = max(scores, key=lambda value: scores[value])
    alike = [value for value, score in scores.items() if score >= scores[best] - FLAT]
    low, high = min(alike, key=float), max(alike, key=float)
    flat = told(low) if low == high else f"{told(low)}{DASH}{told(high)}"
    remark = f"{by} {scores[best]:.4f}"
    record = Record(
        place.table, place.group, place.method, place.batch_size, place.table, best, low, high, len(scores), remark
    )
    return (told(best), flat), record


def _score_told(view: View, cell: Cell | None, by: str) -> str:
    if cell is None:
        return dash()
    score = _score(view, cell, by)
    return dash(cell.status) if score is None else fixed(score, 4)


def _score(view: View, cell: Cell, by: str) -> float | None:
    """The last value of a trial that ended well."""
    series = view.series(cell, by) if cell.ok else {}
    return series[max(series)] if series else None
