"""Test accuracy over seeds at the first, fifth, last and best epoch, and the training loss at the last."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from bnpbench.report.cells import Place, measured, published
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.groups import Group
from bnpbench.report.metrics import best_epoch
from bnpbench.report.view import Cell, View
from bnpbench.text import dash, span

_METRIC, _LOSS = "test_accuracy", "train_loss"
_DIGITS = 4
Series = Mapping[int, float]


def accuracy(view: View, groups: Sequence[Group]) -> Section:
    """One table for each group: a row for each method and batch size."""
    return Section("Test accuracy", tables=tuple(_table(view, group) for group in groups))


def _table(view: View, group: Group) -> Table:
    series = {cell.key: _series(view, cell, _METRIC) for cell in group.cells}
    losses = {cell.key: _series(view, cell, _LOSS) for cell in group.cells}
    lasts = {max(epochs) for epochs in series.values() if epochs}
    last = f"last ({max(lasts)})" if len(lasts) == 1 else "last"
    moments = _moments(last, max(lasts, default=1))
    sources = {cell.key: published(view, [cell], _METRIC) for cell in group.cells}
    shows_sources = any(sources.values())
    rows, records = [], list[Record]()
    for method, batch_size, cells in group.places():
        place = Place("test accuracy", group.title, method, batch_size)
        whole, others = measured(cells)
        texts = [
            _moment(place, _METRIC, name, [pick(series[cell.key]) for cell in whole], others) for name, pick in moments
        ]
        texts.append(_moment(place, _LOSS, last, [_last(losses[cell.key]) for cell in whole], others))
        seeds = (str(len(whole)) if whole else "0") + (f" ({others})" if others else "")
        source = [sources[cells[0].key] or dash()] if shows_sources else []
        rows.append((method, str(batch_size), *(text for text, _ in texts), seeds, *source))
        records += [record for _, record in texts]
    names = (*(name for name, _ in moments), f"train loss, {last}")
    columns = ("method", "N", *names, "seeds", *(["published"] if shows_sources else []))
    note = (
        "Mean (range) over seeds, of the whole test set; the training loss is the last epoch's mean over its batches, "
        "before each update."
    )
    return Table(group.title, columns, tuple(rows), (note,), tuple(records))


def _moments(last: str, epochs: int) -> list[tuple[str, Callable[[Series], tuple[int, float] | None]]]:
    """Names of columns, ``last`` among them, and how each finds its epoch and accuracy, for so many epochs at most."""

    def of(epoch: int) -> Callable[[Series], tuple[int, float] | None]:
        return lambda series: (epoch, series[epoch]) if epoch in series else None

    found = [(f"epoch {epoch}", of(epoch)) for epoch in (1, 5) if epoch < epochs]
    found.append((last, _last))
    return [*found, ("best", _best)] if epochs > 1 else found


def _last(series: Series) -> tuple[int, float] | None:
    return (max(series), series[max(series)]) if series else None


def _best(series: Series) -> tuple[int, float] | None:
    numbers = {epoch: share for epoch, share in series.items() if not math.isnan(share)}
    if not numbers:
        return None
    epoch = best_epoch(numbers, _METRIC)
    return epoch, numbers[epoch]


def _moment(
    place: Place, metric: str, name: str, found: Sequence[tuple[int, float] | None], others: str
) -> tuple[str, Record]:
    quantity = f"{metric} {name.partition(' (')[0]}"
    values = [pair[1] for pair in found if pair is not None]
    if not values:
        return place.empty(quantity, others if not found else "not run")
    text = f"at {span(pair[0] for pair in found if pair is not None)}" if name in ("last", "best") else ""
    if len(values) < len(found):
        text = f"{text} {len(values)} of {len(found)} seeds".strip()
    return place.over_seeds(quantity, sum(values) / len(values), values, _DIGITS, text)


def _series(view: View, cell: Cell, metric: str) -> Series:
    return view.series(cell, metric) if cell.ok else {}
