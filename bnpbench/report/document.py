"""A report as headings, lines and tables, before it becomes text.

What stands in a place of a table is made once, as an ``Entry``: its number and spread for programs, and how readers see
both. Markdown, pages and records are all made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bnpbench.statistics.intervals import Estimate
from bnpbench.text import DASH, dash, decimals, fixed


@dataclass(frozen=True)
class Entry:
    """One number in its place, or the reason why there is none.

    Attributes:
        table: the name of its table.
        group: the settings that tell the table's cells from those of its sisters.
        method: label of the method.
        batch_size: examples a step.
        quantity: what the number is, with its unit.
        value: the number; None where there is none.
        low, high: its interval, or its range over seeds; None where there is none.
        n: how many values it rests on.
        text: the reason, a verdict, a source.
        shown: what readers see; no part of the record.
    """

    table: str
    group: str = ""
    method: str = ""
    batch_size: int | None = None
    quantity: str = ""
    value: float | int | None = None
    low: float | int | None = None
    high: float | int | None = None
    n: int | None = None
    text: str = ""
    shown: str = ""


@dataclass(frozen=True)
class Place:
    """Where numbers stand, and the entries made there."""

    table: str
    group: str = ""
    method: str = ""
    batch_size: int | None = None

    def entry(
        self,
        quantity: str,
        value: float | None = None,
        low: float | None = None,
        high: float | None = None,
        n: int | None = None,
        text: str = "",
        *,
        shown: str = "",
    ) -> Entry:
        """Any number, or none."""
        place = (self.table, self.group, self.method, self.batch_size)
        return Entry(*place, quantity, value, low, high, n, text, shown)

    def empty(self, quantity: str, reason: str) -> Entry:
        """A place without a number, and why."""
        return self.entry(quantity, text=reason, shown=dash(reason))

    def estimate(self, quantity: str, estimate: Estimate | None, text: str = "", *, shown: str = "") -> Entry:
        """An estimate with its interval, and the reason where it has none."""
        if estimate is None:
            return self.entry(quantity, text=text, shown=shown)
        text = "; ".join(filter(None, (text, estimate.reason)))
        return self.entry(quantity, estimate.value, estimate.low, estimate.high, estimate.n, text, shown=shown)

    def interval(self, quantity: str, estimate: Estimate, values: Sequence[float], remark: str = "") -> Entry:
        """A median or ratio with its interval; with too few values for one, their range and number."""
        digits = decimals(estimate.value)
        if estimate.low is not None and estimate.high is not None:
            spread = f"[{fixed(estimate.low, digits)}, {fixed(estimate.high, digits)}]"
        elif estimate.n > 1:
            spread = f"({fixed(min(values), digits)}{DASH}{fixed(max(values), digits)}, n = {estimate.n})"
        else:
            spread = "(n = 1)"
        shown = f"{fixed(estimate.value, digits)} {spread}" + (f"; {remark}" if remark else "")
        return self.estimate(quantity, estimate, remark, shown=shown)

    def over_seeds(self, quantity: str, center: float, values: Sequence[float], digits: int, text: str = "") -> Entry:
        """A mean or median over seeds with the range of their values."""
        low, high = min(values), max(values)
        spread = "(n = 1)" if len(values) == 1 else f"({fixed(low, digits)}{DASH}{fixed(high, digits)})"
        shown = f"{fixed(center, digits)} {spread}" + (f" {text}" if text else "")
        return self.entry(quantity, center, low, high, len(values), text, shown=shown)


@dataclass(frozen=True)
class Table:
    """A table for readers, with its numbers for programs.

    Attributes:
        title: heading; empty under a heading that stands already.
        columns: headings of the columns.
        rows: what stands in them: words, and numbers in their places.
        notes: what a reader must know, one paragraph each.
        reasons: why numbers are lacking; they stand above the table.
        spare: headings of columns that a narrow terminal leaves out, the first one first.
        entries: the numbers in their order, those that no reader is shown too; None for those of the rows, row by row.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Entry, ...], ...]
    notes: tuple[str, ...] = ()
    entries: tuple[Entry, ...] | None = None
    reasons: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as readers see them."""
        return tuple(tuple(cell.shown if isinstance(cell, Entry) else cell for cell in row) for row in self.rows)

    @property
    def records(self) -> tuple[Entry, ...]:
        """The numbers."""
        if self.entries is not None:
            return self.entries
        return tuple(cell for row in self.rows for cell in row if isinstance(cell, Entry))


@dataclass(frozen=True)
class Section:
    """A heading with lines, then tables.

    Attributes:
        title: heading.
        lines: one item each.
        tables: below them.
        level: of the heading, from 1.
    """

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    level: int = 2


@dataclass(frozen=True)
class Chapter:
    """All sections of one suite in one environment; both empty where neither applies."""

    suite: str
    environment: str
    sections: tuple[Section, ...]
