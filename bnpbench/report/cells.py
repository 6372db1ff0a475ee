"""The text and the record of one place of a table: some method at some batch size, over seeds or epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bnpbench.report.document import Record, record
from bnpbench.report.metrics import default_at, describe_at
from bnpbench.report.view import Cell, View
from bnpbench.results import told
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import DASH, dash, decimals, fixed


@dataclass(frozen=True)
class Place:
    """Where a number stands: table, group, method, batch size, quantity."""

    table: str
    group: str
    method: str
    batch_size: int | None

    def empty(self, quantity: str, reason: str) -> tuple[str, Record]:
        """A place without a number, and why."""
        return dash(reason), Record(self.table, self.group, self.method, self.batch_size, quantity, text=reason)

    def interval(
        self, quantity: str, estimate: Estimate, values: Sequence[float], remark: str = ""
    ) -> tuple[str, Record]:
        """A median or ratio with its interval; with too few values for one, their range and number."""
        digits = decimals(estimate.value)
        if estimate.low is not None and estimate.high is not None:
            spread = f"[{fixed(estimate.low, digits)}, {fixed(estimate.high, digits)}]"
        elif estimate.n > 1:
            spread = f"({fixed(min(values), digits)}{DASH}{fixed(max(values), digits)}, n = {estimate.n})"
        else:
            spread = "(n = 1)"
        text = f"{fixed(estimate.value, digits)} {spread}" + (f"; {remark}" if remark else "")
        return text, self._record(quantity, estimate, remark)

    def over_seeds(
        self, quantity: str, center: float, values: Sequence[float], digits: int, text: str = ""
    ) -> tuple[str, Record]:
        """A mean or median over seeds with the range of their values."""
        spread = "(n = 1)" if len(values) == 1 else f"({fixed(min(values), digits)}{DASH}{fixed(max(values), digits)})"
        place = Record(
            self.table,
            self.group,
            self.method,
            self.batch_size,
            quantity,
            center,
            min(values),
            max(values),
            len(values),
            text,
        )
        return f"{fixed(center, digits)} {spread}" + (f" {text}" if text else ""), place

    def _record(self, quantity: str, estimate: Estimate, remark: str) -> Record:
        return record(
            estimate,
            table=self.table,
            group=self.group,
            method=self.method,
            batch_size=self.batch_size,
            quantity=quantity,
            text=remark,
        )


def measured(cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """The cells measured to their end, and what became of the others; all of it when there are no others."""
    whole = [cell for cell in cells if cell.ok]
    statuses = [cell.status for cell in cells if not cell.ok]
    if not cells:
        return [], "not in the suite"
    if not whole and len(set(statuses)) == 1:
        return [], statuses[0]
    return whole, ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def published(view: View, cells: Sequence[Cell], metric: str) -> str:
    """What the suite's references say of a metric of these cells, with its source; empty without one.

    The epochs that a reference is about stand there too, unless they are those of every figure of this metric.
    """
    keys = {cell.key for cell in cells}
    found = []
    for reference in view.document.get("references") or ():
        if reference.get("metric") == metric and keys & set(reference["cells"]):
            usual, at = default_at(metric), reference.get("at") or default_at(metric)
            epochs = "" if at == usual else f"{describe_at(at)}; "
            found.append(f"{told(reference.get('value'))} ({epochs}{reference.get('source')})")
    return "; ".join(dict.fromkeys(found))
