"""Published figures that have no table of their own, beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bnpbench.report.document import Record, Section, Table
from bnpbench.report.metrics import NoDataError, describe_at, value
from bnpbench.report.text import DASH, dash, decimals, fixed
from bnpbench.report.view import View
from bnpbench.results import told

SHOWN_ELSEWHERE = ("train_seconds", "test_accuracy")


def references(view: View) -> Section | None:
    """One row a figure; None where the suite has none of this kind."""
    listed = view.document.get("references") or ()
    elsewhere = (*SHOWN_ELSEWHERE, (view.document.get("select") or {}).get("over"))
    found = [_row(view, reference) for reference in listed if reference.get("metric") not in elsewhere]
    rows, records = tuple(row for row, _ in found), tuple(record for _, record in found)
    columns = ("method", "N", "what", "ours", "published", "source")
    return Section("Published figures", tables=(Table("", columns, rows, (), records),)) if rows else None


def _row(view: View, reference: Mapping[str, Any]) -> tuple[tuple[str, ...], Record]:
    cells = [view.by_key[key] for key in reference["cells"] if key in view.by_key]
    metric, target, at = str(reference.get("metric")), reference.get("target"), reference.get("at") or "last"
    values, reasons = [], []
    for cell in cells:
        try:
            values.append(value(view, cell, metric, at, target))
        except (NoDataError, KeyError, TypeError, ValueError) as reason:
            reasons.append(str(reason))
    what = " ".join(
        filter(None, (metric, told(target) if target is not None else "", describe_at(at) if at != "last" else ""))
    )
    center = sum(values) / len(values) if values else None
    if center is None:
        ours = dash(", ".join(dict.fromkeys(reasons)) or "no cell")
    else:
        low, high = (fixed(bound, decimals(center)) for bound in (min(values), max(values)))
        spread = "n = 1" if len(values) == 1 else f"{low}{DASH}{high}"
        ours = f"{fixed(center, decimals(center))} ({spread})"
    methods = ", ".join(dict.fromkeys(cell.label for cell in cells)) or told(reference.get("cell"))
    sizes = ", ".join(dict.fromkeys(str(cell.batch_size) for cell in cells))
    published, source = told(reference.get("value")), str(reference.get("source"))
    record = Record(
        "published figures",
        method=methods,
        quantity=what,
        value=center,
        n=len(values),
        text=f"published {published}, {source}",
    )
    return (methods, sizes, what, ours, published, source), record
