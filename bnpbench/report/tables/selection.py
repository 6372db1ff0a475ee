"""What ``[select]`` chose: the best value for each method and batch size, and how flat the optimum is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from bnpbench.report.data import Cell, Group, Layout, View, layout
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.tables.claims import published
from bnpbench.results import FINISHED
from bnpbench.suite import setting, told
from bnpbench.text import DASH, dash, fixed, number_of

FLAT = 0.01  # values whose accuracy is at most so far below the best are as good

# The values of the axis by what tells them apart; they may be tables.
_Values = Mapping[str, Any]


def selection(view: View) -> Section | None:
    """One table a group of trials; None for a suite that chooses nothing."""
    if view.document.select is None or not view.trials:
        return None
    over, by = view.document.select.over, view.document.select.by
    arranged = layout(view.trials)
    others = {path: values for path, values in arranged.differing.items() if not f"{path}.".startswith(f"{over}.")}
    tables = tuple(_table(view, group, over, by) for group in Layout(view.trials, others).groups)
    return Section(f"Best {over}", tables=tables)


def _table(view: View, group: Group, over: str, by: str) -> Table:
    values = _ordered(setting(cell.settings, over) for cell in group.cells)
    columns = ("method", "N", "best", "published", f"within {FLAT:g} of the best", *map(told, values.values()))
    rows, chosen = list[tuple[str | Entry, ...]](), list[Entry]()
    for batch_size in group.batch_sizes:
        for method in group.methods:
            if cells := group.at(method, batch_size):
                place = Place(f"best {over}", group.title, method, batch_size)
                found: dict[str, list[Cell]] = {}
                for cell in cells:
                    found.setdefault(repr(setting(cell.settings, over)), []).append(cell)
                best, alike = _row(view, place, values, found, by)
                reference = published(view, cells, over) or dash()
                each = [_score_told(view, found.get(name, []), by) for name in values]
                rows.append((method, str(batch_size), best, reference, alike, *each))
                chosen.append(best)
    seeds = len({cell.seed for cell in group.cells})
    of_seeds = "of one seed" if seeds == 1 else f"(mean of {seeds} seeds)"
    notes = [
        f"Last {by} {of_seeds} at each {over}; the best is trained on the whole training set for the tables below."
    ]
    if not all(cell.status in FINISHED for cell in group.cells):
        notes.append(
            "Where a trial is not finished nothing is chosen: it might be the best, and the finals wait for it."
        )
    if _are_numbers(values.values()):
        ends = (min(values.values()), max(values.values()))
        notes += [
            f"warning: {best.method} at N = {best.batch_size}: the best, {told(best.value)}, is at the end of "
            "what was tried; a better one may lie beyond"
            for best in chosen
            if best.value in ends
        ]
    return Table(group.title, columns, tuple(rows), tuple(notes))


def _row(view: View, place: Place, values: _Values, trials: Mapping[str, Sequence[Cell]], by: str) -> tuple[Entry, str]:
    """The best value, and which are as good."""
    scores = {name: score for name, cells in trials.items() if (score := _score(view, cells, by)) is not None}
    statuses = Counter(cell.status for cells in trials.values() for cell in cells)
    unfinished = {status: count for status, count in statuses.items() if status not in FINISHED}
    if unfinished or not scores:
        waits = ", ".join(
            f"{count} of {number_of(statuses.total(), 'trial')} {status}" for status, count in unfinished.items()
        )
        return place.empty(place.table, f"the finals wait: {waits}" if waits else ", ".join(statuses)), dash()
    best = max(scores, key=lambda name: scores[name])
    good = [name for name in scores if name == best or scores[name] >= scores[best] - FLAT]
    alike = [value for name, value in values.items() if name in good]
    remark, shown = f"{by} {scores[best]:.4f}", told(values[best])
    if not _are_numbers(values.values()):
        remark = f"{shown}; {remark}"
        return place.entry(place.table, n=len(scores), text=remark, shown=shown), ", ".join(map(told, alike))
    entry = place.entry(place.table, values[best], alike[0], alike[-1], len(scores), remark, shown=shown)
    return entry, DASH.join(dict.fromkeys(map(told, (alike[0], alike[-1]))))


def _score_told(view: View, cells: Sequence[Cell], by: str) -> str:
    score = _score(view, cells, by)
    if score is not None:
        return fixed(score, 4)
    return dash(", ".join(dict.fromkeys(cell.status for cell in cells if not cell.ok)))


def _score(view: View, cells: Sequence[Cell], by: str) -> float | None:
    """The mean of the last values of a value's trials; None unless all of them ended well."""
    series = [view.series(cell, by) if cell.ok else {} for cell in cells]
    return mean(one[max(one)] for one in series) if series and all(series) else None


def _ordered(values: Iterable[Any]) -> _Values:
    """Each value once: numbers by size, anything else as the suite has it."""
    found = {repr(value): value for value in values}
    return dict(sorted(found.items(), key=lambda item: item[1])) if _are_numbers(found.values()) else found


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
