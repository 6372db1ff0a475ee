"""Steps in which a method computes anew what it keeps, beside the others: a mean of all would hide them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bnpbench.report.data import Cell, View, measured
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import Missing, times
from bnpbench.text import decimals

_COLUMNS = (
    *("method", "N", "a step, ms", "with a refresh, ms", "ratio"),
    *("FLOP of a refresh", "state, KiB", "optimizer's, KiB"),
)
_NOTE = (
    "Medians of the steps of all epochs and seeds, with the range over seeds. What a method keeps is its state; what "
    "the optimizer keeps stands beside it."
)


def refreshes(view: View) -> Section | None:
    """A row for each method that refreshes in some of its steps; None where there is none."""
    tables = []
    for group in view.groups:
        rows = list[tuple[str | Entry, ...]]()
        for method, batch_size, cells in group.places():
            whole = measured(cells)[0]
            pairs = [pair for cell in whole if (pair := _milliseconds(view, cell)) is not None]
            if pairs:
                place = Place("refreshes", group.title, method, batch_size)
                rows.append((method, str(batch_size), *_entries(place, pairs, whole[0])))
        if rows:
            tables.append(Table(group.title, _COLUMNS, tuple(rows)))
    return Section("Steps with a refresh", (_NOTE,), tuple(tables)) if tables else None


def _entries(place: Place, pairs: Sequence[tuple[float, float]], cell: Cell) -> list[Entry]:
    ordinary, refreshing = ([pair[which] for pair in pairs] for which in (0, 1))
    ratios = [more / less for less, more in pairs]
    series = {"step_milliseconds": ordinary, "refresh_milliseconds": refreshing, "ratio": ratios}
    found = [
        place.over_seeds(name, median(values), values, decimals(median(values))) for name, values in series.items()
    ]
    found.append(_whole(place, "flops_refresh", cell.count("flops_refresh"), "not counted"))
    for name in ("method_state", "optimizer_state"):
        state = cell.count(f"{name}_bytes")
        found.append(_whole(place, f"{name}_kib", None if state is None else state / 2**10, "not recorded"))
    return found


def _whole(place: Place, name: str, value: float | None, absent: str) -> Entry:
    if value is None:
        return place.empty(name, absent)
    return place.entry(name, value, shown=f"{value:,.0f}")


def _milliseconds(view: View, cell: Cell) -> tuple[float, float] | None:
    """Of the median step without a refresh and with one; None where they are not known."""
    found = []
    for name in ("step_seconds_median", "refresh_seconds_median"):
        series = times(view, cell, name)
        seconds = [] if isinstance(series, Missing) else [s for s in series.values() if s > 0]
        if not seconds:
            return None
        found.append(1e3 * median(seconds))
    return found[0], found[1]
