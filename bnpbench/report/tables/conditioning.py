"""The condition numbers that a suite's probe wrote, as medians over iterations (the paper's Figure 8)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from bnpbench.records.rows import metrics
from bnpbench.report.data import Cell, Group, View
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.text import DASH, decimals

_COLUMNS = {name: metric.label for name, metric in metrics("steps").items() if metric.label}
_NOTE = (
    "Median over the iterations looked at, then over seeds (range over seeds). The preconditioner is built from the "
    "statistics of the batch, undamped (batch, the one of the paper's theory) or damped, or from the running damped "
    "ones that BNP uses; gain is the Hessian's κ over the preconditioned one's."
)


def conditioning(view: View) -> Section | None:
    """One table a group; None where nothing was probed."""
    tables = [table for group in view.groups if (table := _table(view, group)).rows]
    return Section("Condition numbers", tables=tuple(tables)) if tables else None


def _table(view: View, group: Group) -> Table:
    rows = list[tuple[str | Entry, ...]]()
    for method, batch_size, cells in group.places():
        place = Place("condition numbers", group.title, method, batch_size)
        known = [kind for cell in cells if cell.ok for kind in view.steps.of(cell.key, "preconditioner")]
        for kind in dict.fromkeys(str(kind) for kind in known if kind):
            found = [_over_seeds(view, place, cells, kind, name) for name in _COLUMNS]
            rows.append((method, str(batch_size), kind.replace("_", ", "), *found))
    columns = ("method", "N", "preconditioner", *_COLUMNS.values())
    return Table(group.title, columns, tuple(rows), (_NOTE,))


def _over_seeds(view: View, place: Place, cells: Sequence[Cell], kind: str, name: str) -> Entry:
    quantity = f"{name}, {kind}"
    medians = [found for cell in cells if cell.ok and (found := _median(view, cell, kind, name)) is not None]
    if not medians:
        return place.empty(quantity, "none known")
    center = statistics.median(medians)
    digits = 0 if all(number.is_integer() for number in medians) else decimals(center)
    entry = place.over_seeds(quantity, center, medians, digits)
    if center < 1e-2 or center >= 1e5:
        spread = "n = 1" if len(medians) == 1 else f"{min(medians):.1e}{DASH}{max(medians):.1e}"
        return replace(entry, shown=f"{center:.2e} ({spread})")
    return entry


def _median(view: View, cell: Cell, kind: str, name: str) -> float | None:
    kinds, numbers = view.steps.of(cell.key, "preconditioner"), view.steps.numbers(cell.key, name)
    found = [x for x, of in zip(numbers, kinds, strict=True) if of == kind and x is not None and math.isfinite(x)]
    return statistics.median(found) if found else None
