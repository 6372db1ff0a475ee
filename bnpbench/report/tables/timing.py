"""Time per epoch in the layout of the paper's Table 1, and ratios from pairs of epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bnpbench.registry import baselines
from bnpbench.report.answer import baseline_of
from bnpbench.report.data import Cell, Group, View, measured
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import Missing, Pairs, comparable, is_comparable, paired_times, times
from bnpbench.report.tables.claims import published
from bnpbench.report.verdicts import noise
from bnpbench.statistics.intervals import Estimate, outliers
from bnpbench.statistics.times import Kind, processes_interval
from bnpbench.text import dash, number_of, plural, span

_METRIC = "train_seconds"
_At = tuple[int, str]  # batch size and method


def timing(view: View) -> Section:
    """Seconds per epoch, and the ratios to the baseline, to vanilla and to bn, one table each for every group."""
    tables: list[Table] = []
    for group in view.groups:
        bases = dict.fromkeys((baseline_of(view, group), *map(group.base, baselines())))
        ratios = [_ratios(view, group, base) for base in bases if base is not None and len(group.methods) > 1]
        alone = bool(ratios) and not any(entry.value for table in ratios for entry in table.records)
        tables += [_seconds(view, group, alone), *(ratios if not alone else ())]
    return Section("Time per epoch", tables=tuple(tables))


def _seconds(view: View, group: Group, alone: bool) -> Table:
    cells = {at: measured(group.at(at[1], at[0])) for at in _places(group, group.methods)}
    series = {at: [list(_times(view, cell).values()) for cell in whole] for at, (whole, _) in cells.items()}
    estimates = _intervals(series, "times", {at: whole for at, (whole, _) in cells.items()})
    entries = {}
    for at, (_, others) in cells.items():
        place = Place("seconds per epoch", group.title, at[1], at[0])
        if at in estimates:
            values = [seconds for epochs in series[at] for seconds in epochs]
            entries[at] = place.interval(_METRIC, estimates[at], values, others)
        else:
            entries[at] = place.empty(_METRIC, others or "no epochs")
    sources = {at: source for at in cells if (source := published(view, group.at(at[1], at[0]), _METRIC))}
    counts = [estimate.n for estimate in estimates.values()]
    flagged = sum(_flagged(view, cell) for at in estimates for cell in cells[at][0])
    notes = [f"Seconds of training: median and {_over(estimates.values(), 'epochs')}."] if counts else []
    if flagged:
        epochs, are = number_of(sum(counts), "epoch"), plural(flagged, "is an outlier", "are outliers")
        notes.append(f"{flagged} of {epochs} {are} (median absolute deviation); none is left out.")
    if alone:
        notes.append(f"No ratios: {_no_ratios(view, group)}.")
    return _pivoted("Seconds per epoch", group, group.methods, entries, notes, sources)


def _no_ratios(view: View, group: Group) -> str:
    """Why there are none."""
    if "method" not in view.document.measure.interleave:
        return 'the methods were not measured in turn ([measure] interleave = ["method"])'
    planned = {cell.key: cell.block for cell in view.document.cells}
    blocks = {planned.get(cell.key) for cell in group.cells}
    if len(blocks) > len({(cell.seed, cell.batch_size) for cell in group.cells}):
        return "only cells that agree in all settings but the method took turns, and here others differ, too"
    if all(cell.ok for cell in group.cells):
        return "the methods were not measured in turn, for the process of their block died and each ran again by itself"
    return "of the cells that take turns not all are measured; the same command goes on from there"


def _ratios(view: View, group: Group, base: str) -> Table:
    methods = [method for method in group.methods if method != base]
    found = {at: _paired_ratios(view, group, at, base) for at in _places(group, methods)}
    ratios = {at: cells for at, cells in found.items() if not isinstance(cells, Missing)}
    pairs = {at: (*group.at(at[1], at[0]), *group.at(base, at[0])) for at in ratios}
    estimates = _intervals(ratios, "ratios", pairs)
    entries, quantity = {}, f"{_METRIC} ratio"
    for at, cells in found.items():
        place = Place(f"ratio to {base}", group.title, at[1], at[0])
        if isinstance(cells, Missing):
            entries[at] = place.empty(quantity, cells.reason)
        else:
            values = [ratio for cell in cells for ratio in cell]
            entries[at] = place.interval(quantity, estimates[at], values, measured(group.at(at[1], at[0]))[1])
    notes = []
    if estimates:
        over = _over(estimates.values(), "pairs of epochs measured in turn")
        notes = [f"Median and {over}."]
        notes += noise(view, list(filter(is_comparable, estimates.values())))
    return _pivoted(f"Ratio to {base}", group, methods, entries, notes)


def _places(group: Group, methods: Sequence[str]) -> list[_At]:
    """By batch size, then by method."""
    return [(size, method) for size in dict.fromkeys(size for _, size, _ in group.places()) for method in methods]


def _pivoted(
    title: str,
    group: Group,
    methods: Sequence[str],
    entries: Mapping[_At, Entry],
    notes: Sequence[str],
    sources: Mapping[_At, str] | None = None,
) -> Table:
    """A row a method, a column a batch size, and beside it what was published where anything was."""
    columns, known = dict[str, list[str | Entry]](), sources or {}
    for size in dict.fromkeys(size for size, _ in entries):
        columns[f"N = {size}"] = [entries[size, method] for method in methods]
        if any((size, method) in known for method in methods):
            columns[f"N = {size}, published"] = [known.get((size, method)) or dash() for method in methods]
    rows = tuple(zip(methods, *columns.values(), strict=True))
    whole = f"{title}: {group.title}" if group.title else title
    return Table(whole, ("method", *columns), rows, tuple(notes), tuple(entries.values()))


def _paired_ratios(view: View, group: Group, at: _At, base: str) -> list[list[float]] | Missing:
    """Cell by cell the ratios of the epochs measured in turn."""
    cells, bases = group.at(at[1], at[0]), group.at(base, at[0])
    for side, whose in ((cells, ""), (bases, f"{base}: ")):
        whole, others = measured(side)
        if not whole:
            return Missing(whose + others)
    pairs: Pairs | Missing = paired_times(view, cells, bases, _METRIC)
    if not pairs or not all(other for cell in pairs for _, other in cell):
        return Missing("not measured in turn")
    return [[one / other for one, other in cell] for cell in pairs]


def _intervals(
    samples: Mapping[_At, Sequence[Sequence[float]]], kind: Kind, cells: Mapping[_At, Sequence[Cell]]
) -> dict[_At, Estimate]:
    """Of every place whose cells have epochs."""
    kept = {at: of_cells for at, sample in samples.items() if (of_cells := [epochs for epochs in sample if epochs])}
    return {at: comparable(processes_interval(of_cells, kind), cells[at]) for at, of_cells in kept.items()}


def _over(estimates: Iterable[Estimate], what: str) -> str:
    """What stands beside medians, intervals or ranges, and what each kind rests on: processes and their epochs."""
    found = list(estimates)
    told = {
        "95 % interval": [estimate for estimate in found if estimate.low is not None],
        "range": [estimate for estimate in found if estimate.low is None],
    }
    return ", or ".join(f"{spread} over {_counts(those, what)}" for spread, those in told.items() if those)


def _counts(found: Sequence[Estimate], what: str) -> str:
    epochs, processes = span(estimate.n for estimate in found), span(estimate.processes for estimate in found)
    one = what.replace("pairs", "pair", 1) if "pairs" in what else what.replace("epochs", "epoch", 1)
    return f"{epochs} {one if epochs == '1' else what} of {processes} process{'' if processes == '1' else 'es'}"


def _times(view: View, cell: Cell) -> Mapping[int, float]:
    return times(view, cell, _METRIC) or {}


def _flagged(view: View, cell: Cell) -> int:
    """How many epochs of a cell are outliers: as measured, else by their seconds."""
    flags = view.epochs.of(cell.key, "outlier")
    if all(flag is None for flag in flags):
        return sum(outliers(list(_times(view, cell).values())))
    return sum(map(bool, flags))
