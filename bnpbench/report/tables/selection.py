"""What ``[select]`` chose: the best values for each method and batch size, and how flat the optimum is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from bnpbench.report.data import Cell, Group, Layout, View, layout
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.tables.claims import published
from bnpbench.results import FINISHED
from bnpbench.suite import setting, told
from bnpbench.text import DASH, dash, fixed, number_of

FLAT = 0.01  # values whose accuracy is at most so far below the best are as good
_DIGITS = 4
_WIDEST = 12  # columns of scores, beyond which no table is read

# The values of an axis by what tells them apart; they may be tables.
_Values = Mapping[str, Any]
_Point = tuple[str, ...]  # what tells apart the value on each axis


@dataclass(frozen=True)
class _Trials:
    """The trials of one method at one batch size.

    Attributes:
        axes: the names of the axes.
        values: of each axis, those that were tried.
        cells: of each point that was tried.
        scores: of each point whose trials all ended well.
    """

    axes: tuple[str, ...]
    values: tuple[_Values, ...]
    cells: Mapping[_Point, Sequence[Cell]]
    scores: Mapping[_Point, float]

    @cached_property
    def best(self) -> _Point:
        """The point with the highest score."""
        return max(self.scores, key=lambda point: self.scores[point])

    @cached_property
    def alike(self) -> list[_Point]:
        """The points that are as good, the best among them."""
        least = self.scores[self.best] - FLAT
        return [point for point, score in self.scores.items() if point == self.best or score >= least]

    def chosen(self, axis: int) -> object:
        """The best value on an axis."""
        return self.values[axis][self.best[axis]]

    def beside(self, axis: int) -> tuple[_Point | None, _Point | None]:
        """The points next to the best one along an axis of numbers, below and above; None beyond an end."""
        names = list(self.values[axis])
        place = names.index(self.best[axis])
        below, above = (names[p] if 0 <= p < len(names) else None for p in (place - 1, place + 1))
        head, tail = self.best[:axis], self.best[axis + 1 :]
        one, other = (None if name is None else (*head, name, *tail) for name in (below, above))
        return one, other

    def ends(self, axis: int) -> bool:
        """Whether the best value is the least or the greatest of several numbers."""
        values = self.values[axis]
        return len(values) > 1 and are_numbers(values.values()) and None in self.beside(axis)

    def losses(self, axis: int) -> str:
        """What the values next to the best on an axis of numbers lose, below and above, at the best of other axes."""
        if not are_numbers(self.values[axis].values()) or len(self.values[axis]) < 2:
            return dash()
        told_of = []
        for point in self.beside(axis):
            if point is None:
                told_of.append("end")
            else:
                score = self.scores.get(point)
                told_of.append("no score" if score is None else fixed(self.scores[self.best] - score, _DIGITS))
        return ", ".join(told_of)


def selection(view: View) -> Section | None:
    """One table a group of trials; None for a suite that chooses nothing."""
    if view.document.select is None or not view.trials:
        return None
    axes, by = view.document.select.axes, view.document.select.by
    inner = tuple(f"{axis}." for axis in axes)
    arranged = layout(view.trials)
    others = {path: values for path, values in arranged.differing.items() if not f"{path}.".startswith(inner)}
    tables = tuple(_table(view, group, axes, by) for group in Layout(view.trials, others).groups)
    return Section(f"Best {' and '.join(axes)}", tables=tables)


def _table(view: View, group: Group, axes: tuple[str, ...], by: str) -> Table:
    points = _points(axes, group.cells)
    shown = points if len(axes) == 1 or len(points) <= _WIDEST else {}
    best = ("best",) if len(axes) == 1 else tuple(f"best {axis}" for axis in axes)
    lost = ("neighbours lose",) if len(axes) == 1 else tuple(f"neighbours of {axis} lose" for axis in axes)
    columns = ("method", "N", *best, "published", f"within {FLAT:g} of the best", *lost, *shown.values())
    rows, chosen = list[tuple[str | Entry, ...]](), list[tuple[str, _Trials]]()
    for batch_size in group.batch_sizes:
        for method in group.methods:
            if cells := group.at(method, batch_size):
                place = Place(f"best {' and '.join(axes)}", group.title, method, batch_size)
                trials = _trials(view, axes, cells, by)
                known = not (reason := _unknown(trials))
                entries = _entries(place, trials, by) if known else [_none(place, axis, axes, reason) for axis in axes]
                reference = "; ".join(filter(None, (published(view, cells, axis) for axis in axes))) or dash()
                alike = _alike(trials) if known else dash()
                losses = [trials.losses(axis) if known else dash() for axis in range(len(axes))]
                each = [_score_told(view, trials.cells.get(point, []), by) for point in shown]
                rows.append((method, str(batch_size), *entries, reference, alike, *losses, *each))
                if known:
                    chosen.append((f"{method} at N = {batch_size}", trials))
    return Table(group.title, columns, tuple(rows), tuple(_notes(group, axes, by, chosen)))


def _notes(group: Group, axes: tuple[str, ...], by: str, chosen: Iterable[tuple[str, _Trials]]) -> Iterator[str]:
    seeds = len({cell.seed for cell in group.cells})
    of_seeds = "of one seed" if seeds == 1 else f"(mean of {seeds} seeds)"
    yield (
        f"Last {by} {of_seeds} at each {' and '.join(axes)}; the best is trained on the whole training set for the "
        "tables below. Neighbours: the values tried next below and above, what their score is less than the best."
    )
    if not all(cell.status in FINISHED for cell in group.cells):
        yield "Where a trial is not finished nothing is chosen: it might be the best, and the finals wait for it."
    for where, trials in chosen:
        for number, axis in enumerate(axes):
            if trials.ends(number):
                what = "the best" if len(axes) == 1 else f"the best {axis}"
                yield (
                    f"warning: {where}: {what}, {told(trials.chosen(number))}, is at the end of what was tried; a "
                    "better one may lie beyond"
                )


def _trials(view: View, axes: tuple[str, ...], cells: Sequence[Cell], by: str) -> _Trials:
    found: dict[_Point, list[Cell]] = {}
    for cell in cells:
        found.setdefault(_point(axes, cell), []).append(cell)
    scores = {point: score for point, those in found.items() if (score := _score(view, those, by)) is not None}
    values = tuple(_ordered(setting(cell.settings, axis) for cell in cells) for axis in axes)
    return _Trials(axes, values, found, scores)


def _unknown(trials: _Trials) -> str:
    """Why nothing is chosen; empty where something is."""
    statuses = Counter(cell.status for cells in trials.cells.values() for cell in cells)
    unfinished = {status: count for status, count in statuses.items() if status not in FINISHED}
    waits = ", ".join(
        f"{count} of {number_of(statuses.total(), 'trial')} {status}" for status, count in unfinished.items()
    )
    return f"the finals wait: {waits}" if waits else "" if trials.scores else ", ".join(statuses)


def _none(place: Place, axis: str, axes: tuple[str, ...], reason: str) -> Entry:
    return place.empty(place.table if len(axes) == 1 else f"best {axis}", reason)


def _entries(place: Place, trials: _Trials, by: str) -> list[Entry]:
    """The best value on each axis, and from which to which value of it points are as good."""
    entries = []
    for number, axis in enumerate(trials.axes):
        quantity = place.table if len(trials.axes) == 1 else f"best {axis}"
        values = trials.values[number]
        best = values[trials.best[number]]
        remark, shown = f"{by} {trials.scores[trials.best]:.4f}", told(best)
        if not are_numbers(values.values()):
            entries.append(place.entry(quantity, n=len(trials.scores), text=f"{shown}; {remark}", shown=shown))
            continue
        names = {point[number] for point in trials.alike}
        alike = [value for name, value in values.items() if name in names]
        entries.append(place.entry(quantity, best, alike[0], alike[-1], len(trials.scores), remark, shown=shown))
    return entries


def _alike(trials: _Trials) -> str:
    """Which points are as good as the best."""
    if len(trials.axes) > 1:
        return f"{len(trials.alike)} of {len(trials.scores)}"
    (values,) = trials.values
    names = {name for (name,) in trials.alike}
    alike = [told(value) for name, value in values.items() if name in names]
    return DASH.join(dict.fromkeys((alike[0], alike[-1]))) if are_numbers(values.values()) else ", ".join(alike)


def _points(axes: tuple[str, ...], cells: Sequence[Cell]) -> dict[_Point, str]:
    """Every point that was tried, with its values as text; numbers by size."""
    values = [_ordered(setting(cell.settings, axis) for cell in cells) for axis in axes]
    places = [{name: place for place, name in enumerate(of_axis)} for of_axis in values]
    tried = dict.fromkeys(_point(axes, cell) for cell in cells)
    ordered = sorted(tried, key=lambda point: [place[name] for place, name in zip(places, point, strict=True)])
    return {
        point: ", ".join(told(of_axis[name]) for of_axis, name in zip(values, point, strict=True)) for point in ordered
    }


def _point(axes: tuple[str, ...], cell: Cell) -> _Point:
    return tuple(repr(setting(cell.settings, axis)) for axis in axes)


def _score_told(view: View, cells: Sequence[Cell], by: str) -> str:
    score = _score(view, cells, by)
    if score is not None:
        return fixed(score, _DIGITS)
    return dash(", ".join(dict.fromkeys(cell.status for cell in cells if not cell.ok)))


def _score(view: View, cells: Sequence[Cell], by: str) -> float | None:
    """The mean of the last values of a value's trials; None unless all of them ended well."""
    series = [view.series(cell, by) if cell.ok else {} for cell in cells]
    return mean(one[max(one)] for one in series) if series and all(series) else None


def _ordered(values: Iterable[Any]) -> _Values:
    """Each value once: numbers by size, anything else as the suite has it."""
    found = {repr(value): value for value in values}
    return dict(sorted(found.items(), key=lambda item: item[1])) if are_numbers(found.values()) else found


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether values have an order; truth values have none."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
