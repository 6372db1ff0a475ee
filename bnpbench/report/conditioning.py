"""The condition numbers that a suite's probe wrote, as medians over iterations (the paper's Figure 8)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bnpbench.report.cells import Place
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.groups import Group
from bnpbench.report.view import Cell, View
from bnpbench.text import DASH, decimals

_COLUMNS = {
    "kappa_hessian": "κ of the Hessian",
    "kappa_preconditioned": "preconditioned",
    "kappa_gain": "gain",
    "kappa_d": "κ(D)",
    "gain_over_kappa_d_squared": "gain / κ(D)²",
    "rank": "rank",
    "live_features": "live features",
}
_NOTE = (
    "Median over the iterations looked at, then over seeds (range over seeds). The preconditioner is built from the "
    "statistics of the batch, undamped (batch, the one of the paper's theory) or damped, or from the running damped "
    "ones that BNP uses; gain is the Hessian's κ over the preconditioned one's."
)


def conditioning(view: View, groups: Sequence[Group]) -> Section | None:
    """One table a group; None where nothing was probed."""
    tables = [table for group in groups if (table := _table(view, group)).rows]
    return Section("Condition numbers", tables=tuple(tables)) if tables else None


def _table(view: View, group: Group) -> Table:
    rows, records = [], list[Record]()
    for method, batch_size, cells in group.places():
        place = Place("condition numbers", group.title, method, batch_size)
        kinds = dict.fromkeys(k for cell in cells if cell.ok for k in view.steps.of(cell.key, "preconditioner") if k)
        for kind in kinds:
            texts = []
            for name in _COLUMNS:
                text, record = _over_seeds(view, place, cells, kind, name)
                texts.append(text)
                records.append(record)
            rows.append((method, str(batch_size), kind.replace("_", ", "), *texts))
    columns = ("method", "N", "preconditioner", *_COLUMNS.values())
    return Table(group.title, columns, tuple(rows), (_NOTE,), tuple(records))


def _over_seeds(view: View, place: Place, cells: Sequence[Cell], kind: str, name: str) -> tuple[str, Record]:
    quantity = f"{name}, {kind}"
    medians = [found for cell in cells if cell.ok and (found := _median(view, cell, kind, name)) is not None]
    if not medians:
        return place.empty(quantity, "none known")
    center = statistics.median(medians)
    digits = 0 if all(number.is_integer() for number in medians) else decimals(center)
    text, record = place.over_seeds(quantity, center, medians, digits)
    if center < 1e-2 or center >= 1e5:
        spread = "n = 1" if len(medians) == 1 else f"{min(medians):.1e}{DASH}{max(medians):.1e}"
        text = f"{center:.2e} ({spread})"
    return text, record


def _median(view: View, cell: Cell, kind: str, name: str) -> float | None:
    kinds, numbers = view.steps.of(cell.key, "preconditioner"), view.steps.of(cell.key, name)
    found = [float(x) for x, k in zip(numbers, kinds, strict=True) if k == kind and x is not None]
    finite = [x for x in found if math.isfinite(x)]
    return statistics.median(finite) if finite else None
