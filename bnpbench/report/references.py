"""Published figures that have no table of their own, beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bnpbench.report.cells import Place
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.metrics import TIMES, At, NoDataError, default_at, describe_at, times, value
from bnpbench.report.view import Cell, View
from bnpbench.results import told
from bnpbench.statistics.bootstrap import cells_interval
from bnpbench.text import decimals

SHOWN_ELSEWHERE = ("train_seconds", "test_accuracy")


def references(view: View) -> Section | None:
    """One row a figure; None where the suite has none of this kind."""
    listed = view.document.get("references") or ()
    elsewhere = (*SHOWN_ELSEWHERE, view.select.get("over"))
    found = [_row(view, reference) for reference in listed if reference.get("metric") not in elsewhere]
    rows, records = tuple(row for row, _ in found), tuple(record for _, record in found)
    columns = ("method", "N", "what", "ours", "published", "source")
    return Section("Published figures", tables=(Table("", columns, rows, (), records),)) if rows else None


def _row(view: View, reference: Mapping[str, Any]) -> tuple[tuple[str, ...], Record]:
    cells = [view.by_key[key] for key in reference["cells"] if key in view.by_key]
    metric, target = str(reference.get("metric")), reference.get("target")
    at = reference.get("at") or default_at(metric)
    values, reasons = [], []
    for cell in cells:
        try:
            values.append(_numbers(view, cell, metric, at, target))
        except (NoDataError, KeyError, TypeError, ValueError) as reason:
            reasons.append(str(reason))
    epochs = "" if at == "last" and metric not in TIMES else describe_at(at)
    what = " ".join(filter(None, (metric, "" if target is None else told(target), epochs)))
    methods = ", ".join(dict.fromkeys(cell.label for cell in cells)) or told(reference.get("cell"))
    sizes = ", ".join(dict.fromkeys(str(cell.batch_size) for cell in cells))
    place = Place("published figures", "", methods, None)
    if values:
        ours, record = _ours(place, what, values, are_times=metric in TIMES)
    else:
        ours, record = place.empty(what, ", ".join(dict.fromkeys(reasons)) or "no cell")
    published, source = told(reference.get("value")), str(reference.get("source"))
    text = "; ".join(filter(None, (record.text, f"published {published}, {source}")))
    return (methods, sizes, what, ours, published, source), replace(record, text=text)


def _numbers(view: View, cell: Cell, metric: str, at: At, target: float | None) -> list[float]:
    """Of a cell: its times at all the epochs, or the one number."""
    if metric in TIMES:
        return list(times(view, cell, metric, at).values())
    return [value(view, cell, metric, at, target)]


def _ours(place: Place, what: str, values: Sequence[Sequence[float]], *, are_times: bool) -> tuple[str, Record]:
    """Times by their median and interval over epochs, as of a claim; anything else by its mean over seeds."""
    every = [number for numbers in values for number in numbers]
    if are_times:
        return place.interval(what, cells_interval(values), every)
    center = sum(every) / len(every)
    return place.over_seeds(what, center, every, decimals(center))
