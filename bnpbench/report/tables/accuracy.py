"""What was learned: the suite's metric at the first, fifth, last and best epoch, and the time to reach a target."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bnpbench.records.rows import spoken
from bnpbench.report.data import Cell, Group, Series, View, measured, number
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import Missing, best_epoch, value
from bnpbench.report.tables.claims import published
from bnpbench.text import dash, decimals, number_of, span

_LOSS = "train_loss"
_DIGITS = 4
_Moment = tuple[int, float]  # an epoch and what was measured there


def accuracy(view: View) -> Section:
    """One table for each group: a row for each method and batch size."""
    return Section(_words(view).capitalize(), tables=tuple(_table(view, group) for group in view.groups))


def time_to_accuracy(view: View) -> Section | None:
    """Seconds and epochs to each target, and how many seeds reached it; None without targets."""
    targets = view.document.targets
    tables = tuple(_to_accuracy(view, group, targets) for group in view.groups) if targets else ()
    what = "accuracy" if view.document.metric.endswith("accuracy") else _words(view)
    return Section(f"Time to {what}", tables=tables) if tables else None


def _words(view: View) -> str:
    return spoken(view.document.metric)


def _table(view: View, group: Group) -> Table:
    metric = view.document.metric
    series = {cell.key: _series(view, cell, metric) for cell in group.cells}
    beside = dict.fromkeys(
        name for cell in group.cells if cell.ok for name in view.epochs.own(cell.key) if name != metric
    )
    ends = {name: "train loss" if name == _LOSS else spoken(name) for name in (_LOSS, *beside)}
    lasts = {max(epochs) for epochs in series.values() if epochs}
    last = f"last ({max(lasts)})" if len(lasts) == 1 else "last"
    moments = _moments(last, max(lasts, default=1), lambda series: _best(series, metric))
    sources = {cell.key: published(view, [cell], metric) for cell in group.cells}
    shows_sources = any(sources.values())
    rows = list[tuple[str | Entry, ...]]()
    for method, batch_size, cells in group.places():
        place = Place(_words(view), group.title, method, batch_size)
        whole, others = measured(cells)
        found = [
            _moment(place, metric, name, [pick(series[cell.key]) for cell in whole], others) for name, pick in moments
        ]
        found += (
            _moment(place, name, last, [_last(_series(view, cell, name)) for cell in whole], others) for name in ends
        )
        seeds = (str(len(whole)) if whole else "0") + (f" ({others})" if others else "")
        source = [sources[cells[0].key] or dash()] if shows_sources else []
        rows.append((method, str(batch_size), *found, seeds, *source))
    names = (name for name, _ in moments)
    columns = (
        "method",
        "N",
        *names,
        *(f"{word}, {last}" for word in ends.values()),
        "seeds",
        *(["published"] if shows_sources else []),
    )
    note = (
        "Mean (range) over seeds, of the whole test set; the training loss is the last epoch's mean over its batches, "
        "before each update."
    )
    return Table(group.title, columns, tuple(rows), (note,))


def _moments(
    last: str, epochs: int, best: Callable[[Series], _Moment | None]
) -> list[tuple[str, Callable[[Series], _Moment | None]]]:
    """Names of columns, ``last`` among them, and how each finds its epoch and number, for so many epochs at most."""

    def of(epoch: int) -> Callable[[Series], _Moment | None]:
        return lambda series: (epoch, series[epoch]) if epoch in series else None

    found = [(f"epoch {epoch}", of(epoch)) for epoch in (1, 5) if epoch < epochs]
    found.append((last, _last))
    return [*found, ("best", best)] if epochs > 1 else found


def _last(series: Series) -> _Moment | None:
    return (max(series), series[max(series)]) if series else None


def _best(series: Series, metric: str) -> _Moment | None:
    epoch = best_epoch(series, metric)
    return None if epoch is None else (epoch, series[epoch])


def _moment(place: Place, metric: str, name: str, found: Sequence[_Moment | None], others: str) -> Entry:
    quantity = f"{metric} {name.partition(' (')[0]}"
    known = [pair for pair in found if pair is not None]
    if not known:
        return place.empty(quantity, others if not found else "not run")
    text = f"at {span(epoch for epoch, _ in known)}" if name in ("last", "best") else ""
    if len(known) < len(found):
        text = f"{text} {len(known)} of {number_of(len(found), 'seed')}".strip()
    values = [share for _, share in known]
    return place.over_seeds(quantity, sum(values) / len(values), values, _DIGITS, text)


def _series(view: View, cell: Cell, metric: str) -> Series:
    return view.series(cell, metric) if cell.ok else {}


# --- time to accuracy ---------------------------------------------------------------------


def _to_accuracy(view: View, group: Group, targets: Sequence[float]) -> Table:
    rows, entries = list[tuple[str | Entry, ...]](), list[Entry]()
    for method, batch_size, cells in group.places():
        for target in targets:
            found = _reached(view, Place("time to accuracy", group.title, method, batch_size), cells, number(target))
            rows.append((method, str(batch_size), str(target), *found))
            entries += found
    columns = ("method", "N", _words(view), "seconds", "epochs", "steps", "seeds that reached it")
    note = "Median (range) over the seeds that reached it; seconds of training up to the end of the first such epoch."
    return Table(group.title, columns, tuple(rows), (note,), tuple(entries))


def _reached(view: View, place: Place, cells: Sequence[Cell], target: float) -> list[Entry]:
    answers = [(cell, value(view, cell, "reached", target=target)) for cell in cells]
    reached = [cell for cell, answer in answers if not isinstance(answer, Missing) and answer]
    whys = ", ".join(dict.fromkeys(answer.reason for _, answer in answers if isinstance(answer, Missing)))
    asked = sum(not isinstance(answer, Missing) for _, answer in answers)
    whole, others = measured(cells)
    entries = []
    for metric, digits in (("seconds_to", None), ("epochs_to", 0), ("steps_to", 0)):
        quantity = f"{metric} {target}"
        found = [value(view, cell, metric, target=target) for cell in reached]
        values = [taken for taken in found if not isinstance(taken, Missing)]
        if not reached:
            entries.append(place.empty(quantity, "never" if whole else others or whys))
        elif not values:
            entries.append(place.empty(quantity, "no steps" if metric == "steps_to" else "no train_seconds"))
        else:
            center = statistics.median(values)
            places = decimals(center) if digits is None else digits if center == int(center) else 1
            entries.append(place.over_seeds(quantity, center, values, places))
    share = f"{len(reached)} of {asked}" if asked else dash(whys)
    shown = f"{share} ({others})" if others and asked else share
    return [*entries, place.entry(f"reached {target}", len(reached), n=asked, text=others, shown=shown)]
