"""Seconds for which a cell waited for the compiler: those that made a step, and those that found it made."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bnpbench.report.data import Cell, View, measured
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.text import significant

_LEAST = 0.05  # seconds before the first step, from which on a compiler was at work; anything else takes 0.002
_NOTE = (
    "Medians over seeds of the seconds before the first step. Each process traces its step; what the compiler makes of "
    "it is kept, and found by other seeds and later runs."
)


def compiling(view: View) -> Section | None:
    """A row for each method whose steps were compiled; None where there is none."""
    tables = []
    for group in view.groups:
        rows, entries = list[tuple[str, ...]](), list[Entry]()
        for method, batch_size, cells in group.places():
            place = Place("compiling", group.title, method, batch_size)
            found = _entries(place, measured(cells)[0])
            if found:
                rows.append((method, str(batch_size), ", then ".join(entry.shown for entry in found)))
                entries += found
        if rows:
            tables.append(Table(group.title, ("method", "N", "compiling"), tuple(rows), (), tuple(entries)))
    return Section("Compiling", (_NOTE,), tuple(tables)) if tables else None


def _entries(place: Place, cells: Sequence[Cell]) -> list[Entry]:
    """Of the cells for which anything was compiled, and of those whose graphs were all found.

    Where no graph was counted, as of a form that is compiled in an eager step, the cell waited all the same.
    """
    found = [cell for cell in cells if cell.count("cache_hits") and not cell.count("cache_misses")]
    made = [cell for cell in cells if cell not in found and _waited(cell)]
    entries = []
    for quantity, those, remark in (
        ("compile_seconds", made, ""),
        ("compile_seconds from the cache", found, f" ({len(found)} from the cache)"),
    ):
        values = [seconds for cell in those if isinstance(seconds := cell.row.get("compile_seconds"), float)]
        if values:
            middle = median(values)
            shown = f"{significant(middle, 2)} s{remark}"
            entries.append(place.entry(quantity, middle, min(values), max(values), len(values), shown=shown))
    return entries


def _waited(cell: Cell) -> bool:
    seconds = cell.row.get("compile_seconds")
    return bool(cell.count("cache_misses")) or (isinstance(seconds, float) and seconds >= _LEAST)
