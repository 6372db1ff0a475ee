"""Time per epoch in the layout of the paper's Table 1, ratios from pairs, and time to accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from operator import itemgetter

from bnpbench.report.advice import noise
from bnpbench.report.cells import Place, measured, published
from bnpbench.report.claims import paired_times
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.groups import Group
from bnpbench.report.metrics import NoDataError, times, value
from bnpbench.report.view import Cell, View, number
from bnpbench.statistics.bootstrap import cells_intervals
from bnpbench.statistics.intervals import Estimate, outliers
from bnpbench.text import dash, decimals, span

_METRIC = "train_seconds"
_At = tuple[int, str]  # batch size and method
_second = itemgetter(1)


def timing(view: View, groups: Sequence[Group]) -> Section:
    """Seconds per epoch, and the ratios to vanilla and to bn, one table each for every group."""
    tables: list[Table] = []
    for group in groups:
        bases = [base for base in map(group.base, ("vanilla", "bn")) if base is not None and len(group.methods) > 1]
        ratios = [_ratios(view, group, base) for base in bases]
        alone = bool(ratios) and not any(record.value for table in ratios for record in table.records)
        tables += [_seconds(view, group, alone), *(ratios if not alone else ())]
    return Section("Time per epoch", tables=tuple(tables))


def time_to_accuracy(view: View, groups: Sequence[Group]) -> Section | None:
    """Seconds and epochs to each target, and how many seeds reached it; None without targets."""
    targets = view.document.get("targets") or ()
    tables = tuple(_to_accuracy(view, group, targets) for group in groups) if targets else ()
    return Section("Time to accuracy", tables=tables) if tables else None


def titled(title: str, group: Group) -> str:
    """A table's title with the settings of its group."""
    return f"{title}: {group.title}" if group.title else title


def _seconds(view: View, group: Group, alone: bool) -> Table:
    columns, rows, records = ["method"], [[method] for method in group.methods], list[Record]()
    sizes = list(dict.fromkeys(size for _, size, _ in group.places()))
    cells = {(size, method): measured(group.at(method, size)) for size in sizes for method in group.methods}
    series = {place: [list(_times(view, cell).values()) for cell in whole] for place, (whole, _) in cells.items()}
    estimates = _intervals(series)
    for batch_size in sizes:
        columns.append(f"N = {batch_size}")
        sources = [published(view, group.at(method, batch_size), _METRIC) for method in group.methods]
        for row, method in zip(rows, group.methods, strict=True):
            place = Place("seconds per epoch", group.title, method, batch_size)
            at, others = (batch_size, method), cells[batch_size, method][1]
            if at in estimates:
                values = [seconds for epochs in series[at] for seconds in epochs]
                text, row_record = place.interval(_METRIC, estimates[at], values, others)
            else:
                text, row_record = place.empty(_METRIC, others or "no epochs")
            row.append(text)
            records.append(row_record)
        if any(sources):
            columns.append(f"N = {batch_size}, published")
            for row, source in zip(rows, sources, strict=True):
                row.append(source or dash())
    counts = [estimate.n for estimate in estimates.values()]
    flagged = sum(_flagged(view, cell) for at in estimates for cell in cells[at][0])
    notes = [f"Seconds of training: median and 95 % interval (bootstrap) over {span(counts)} epochs."] if counts else []
    if flagged:
        notes.append(f"{flagged} of {sum(counts)} epochs are outliers (median absolute deviation); none is left out.")
    if alone:
        notes.append('No ratios: the methods were not measured in turn ([measure] interleave = ["method"]).')
    return Table(
        titled("Seconds per epoch", group), tuple(columns), tuple(map(tuple, rows)), tuple(notes), tuple(records)
    )


def _ratios(view: View, group: Group, base: str) -> Table:
    methods = [method for method in group.methods if method != base]
    columns, rows, records = ["method"], [[method] for method in methods], list[Record]()
    sizes = list(dict.fromkeys(size for _, size, _ in group.places()))
    ratios, reasons = dict[_At, list[list[float]]](), dict[_At, str]()
    for at in ((size, method) for size in sizes for method in methods):
        try:
            ratios[at] = _paired_ratios(view, group, at, base)
        except NoDataError as reason:
            reasons[at] = str(reason)
    estimates = _intervals(ratios)
    for batch_size in sizes:
        columns.append(f"N = {batch_size}")
        for row, method in zip(rows, methods, strict=True):
            place, quantity = Place(f"ratio to {base}", group.title, method, batch_size), f"{_METRIC} ratio"
            at = (batch_size, method)
            if at in reasons:
                text, row_record = place.empty(quantity, reasons[at])
            else:
                values = [ratio for cell in ratios[at] for ratio in cell]
                others = measured(group.at(method, batch_size))[1]
                text, row_record = place.interval(quantity, estimates[at], values, others)
            row.append(text)
            records.append(row_record)
    notes = []
    if estimates:
        counts = span(estimate.n for estimate in estimates.values())
        notes = [f"Median and 95 % interval (bootstrap) over {counts} pairs of epochs measured in turn."]
        notes += noise(view, list(estimates.values()))
    title = titled(f"Ratio to {base}", group)
    return Table(title, tuple(columns), tuple(map(tuple, rows)), tuple(notes), tuple(records))


def _paired_ratios(view: View, group: Group, at: _At, base: str) -> list[list[float]]:
    """Cell by cell the ratios of the epochs measured in turn; NoDataError where there are none."""
    cells, bases = group.at(at[1], at[0]), group.at(base, at[0])
    for side, whose in ((cells, ""), (bases, f"{base}: ")):
        whole, others = measured(side)
        if not whole:
            raise NoDataError(whose + others)
    beside = {cell.seed: cell for cell in bases if cell.ok}
    sides = {str(cell.seed): (cell, beside[cell.seed]) for cell in cells if cell.ok and cell.seed in beside}
    left = {seed: _times(view, pair[0]) for seed, pair in sides.items()}
    right = {seed: _times(view, pair[1]) for seed, pair in sides.items()}
    pairs = paired_times(view, sides, left, right) if sides else None
    if not pairs or not all(min(cell, key=_second)[1] for cell in pairs):
        raise NoDataError("not measured in turn")
    return [[one / other for one, other in cell] for cell in pairs]


def _intervals(samples: Mapping[_At, Sequence[Sequence[float]]]) -> dict[_At, Estimate]:
    """Of every place whose cells have epochs."""
    kept = {at: cells for at, sample in samples.items() if (cells := [epochs for epochs in sample if epochs])}
    return dict(zip(kept, cells_intervals(list(kept.values())), strict=True))


def _to_accuracy(view: View, group: Group, targets: Sequence[float]) -> Table:
    rows, records = [], list[Record]()
    for method, batch_size, cells in group.places():
        for target in targets:
            texts, found = _reached(view, group, cells, number(target))
            rows.append((method, str(batch_size), str(target), *texts))
            records += found
    columns = ("method", "N", "test accuracy", "seconds", "epochs", "seeds that reached it")
    note = "Median (range) over the seeds that reached it; seconds of training up to the end of the first such epoch."
    return Table(group.title, columns, tuple(rows), (note,), tuple(records))


def _reached(view: View, group: Group, cells: Sequence[Cell], target: float) -> tuple[list[str], list[Record]]:
    place = Place("time to accuracy", group.title, cells[0].label, cells[0].batch_size)
    reached, asked, whys = list[Cell](), 0, list[str]()
    for cell in cells:
        try:
            reached += [cell] if value(view, cell, "reached", target=target) else []
            asked += 1
        except NoDataError as reason:
            whys.append(str(reason))
    texts, records = [], []
    whole, others = measured(cells)
    for metric, digits in (("seconds_to", None), ("epochs_to", 0)):
        quantity = f"{metric} {target}"
        values = [found for cell in reached if (found := _taken(view, cell, metric, target)) is not None]
        if not reached:
            text, row = place.empty(quantity, "never" if whole else others or ", ".join(dict.fromkeys(whys)))
        elif not values:
            text, row = place.empty(quantity, "no train_seconds")
        else:
            center = statistics.median(values)
            places = decimals(center) if digits is None else digits if center == int(center) else 1
            text, row = place.over_seeds(quantity, center, values, places)
        texts.append(text)
        records.append(row)
    share = f"{len(reached)} of {asked}" if asked else dash(", ".join(dict.fromkeys(whys)))
    texts.append(f"{share} ({others})" if others and asked else share)
    records.append(
        Record(
            place.table,
            place.group,
            place.method,
            place.batch_size,
            f"reached {target}",
            len(reached),
            n=asked,
            text=others,
        )
    )
    return texts, records


def _taken(view: View, cell: Cell, metric: str, target: float) -> float | None:
    try:
        return value(view, cell, metric, target=target)
    except NoDataError:
        return None


def _times(view: View, cell: Cell) -> Mapping[int, float]:
    try:
        return times(view, cell, _METRIC)
    except NoDataError:
        return {}


def _flagged(view: View, cell: Cell) -> int:
    """How many epochs of a cell are outliers: as measured, else by their seconds."""
    flags = view.epochs.of(cell.key, "outlier")
    if all(flag is None for flag in flags):
        flags = outliers(list(_times(view, cell).values()))
    return sum(map(bool, flags))
