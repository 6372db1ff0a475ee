"""What ran, on what machine, what did not finish, and what a reader must know before believing the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bnpbench.records.rows import LEAST_BLOCK_SECONDS
from bnpbench.report.data import Cell, View, tallied
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import INCOMPARABLE, USED, disturbances
from bnpbench.report.unknown import untold
from bnpbench.suite import told
from bnpbench.suite.settings import having
from bnpbench.text import number_of, plural, some, span

_SHOWN = 5  # keys, logs and values in one place of a table

# By settings, methods, batch sizes, and what became of them.
_Rows = Mapping[tuple[tuple[str, ...], ...], list[Cell]]


def heading(view: View) -> Section:
    """The suite and the machine."""
    return Section(f"{view.suite} on {_hardware_name(view)}", level=1)


def ran(view: View) -> Section:
    """What the suite is, how many of its cells were measured, where and how."""
    told_of = {"source": view.document.source, "description": view.document.description}
    lines = [f"{name}: {text}" for name, text in told_of.items() if text]
    if not view.named:
        lines.append("no suite.json is here: every cell is shown, with the settings that differ from their default")
    lines.append(f"cells: {_statuses(view.cells)}")
    if view.trials:
        lines.append(f"trials, which only choose a setting: {_statuses(view.trials)}")
    lines += [*_machine(view), f"environment: {view.id}", *_measuring(view), *_provenance(view.cells)]
    return Section("What ran", tuple(lines))


def settings(view: View) -> Section:
    """What all cells share, and what follows from the method or the batch size."""
    shared = _shared(view.cells[0].settings, view.layout.differing) if view.cells else {}
    lines = [
        f"{name} = {told(value)}"
        for name, value in shared.items()
        if name not in having("axis") and value not in (None, False, 0, "none", [])
    ]
    for path, values in view.layout.differing.items():
        owners: dict[str, list[Cell]] = {}
        for cell, value in zip(view.cells, values, strict=True):
            owners.setdefault(told(value), []).append(cell)
        known = {
            value: cells for value, cells in owners.items() if value != told(None)
        } or owners  # others have no such
        texts = [f"{value}{_of(value, cells, view)}" for value, cells in list(known.items())[:_SHOWN]]
        lines.append(f"{path} = {'; '.join(texts)}")
        if len(known) > _SHOWN:
            lines[-1] += f"; and {len(known) - _SHOWN} more"
    return Section("Settings", tuple(lines))


def _shared(settings: Mapping[str, Any], differing: Iterable[str], within: str = "") -> dict[str, Any]:
    """What is left of a cell's settings, or of a table of them, without those that differ between cells."""
    found = dict[str, Any]()
    for name, value in settings.items():
        path = f"{within}{name}"
        if not any(f"{other}.".startswith(f"{path}.") for other in differing):
            found[name] = value
        elif isinstance(value, dict) and (inner := _shared(value, differing, f"{path}.")):
            found[name] = inner
    return found


def deviations(view: View) -> Section | None:
    """Where the run is not what the suite, or a reader, expects; None where it is."""
    lines = []
    shortened = view.document.shortened and view.document.shortened.epochs
    if shortened:
        epochs = "1 epoch" if shortened == 1 else f"{told(shortened)} epochs"
        lines.append(f"shortened: {epochs} instead of the suite's (--epochs); schedules are as they were")
    elif longer := sorted(
        {(cell.epochs, cell.whole) for cell in view.cells if cell.whole and cell.whole < cell.epochs}
    ):
        each = some(f"{number_of(epochs, 'epoch')} instead of the suite's {whole}" for epochs, whole in longer)
        lines.append(f"lengthened: {each} (--epochs)")
    if view.document.changes:
        lines.append(f"changed by --set: {some(view.document.changes)}")
    seeds = {str(cell.settings.get("seed")) for cell in view.document.cells}
    run = {str(cell.settings.get("seed")) for cell in (*view.cells, *view.trials)}
    if view.named and len(run) < len(seeds):
        lines.append(f"seeds: {len(run)} of the suite's {len(seeds)}")
    if stopped := [cell for cell in view.cells if cell.status == "interrupted"]:
        left = len(stopped) + sum(not cell.row for cell in view.cells)
        lines.append(
            f"stopped before its end: {left} of {number_of(len(view.cells), 'cell')} "
            f"{plural(left, 'was', 'were')} not measured; the same command goes on from there"
        )
    limits = {told(limit) for cell in view.cells if (limit := cell.settings.get("train_limit")) is not None}
    lines += [
        f"limited: trained on the first {limit} {plural(int(limit == '1'), 'example', 'examples')} (train_limit)"
        for limit in sorted(limits)
    ]
    cells = [cell for cell in view.cells if cell.row]
    for name, text in (
        ("dirty", "measured from a work tree with uncommitted changes"),
        ("throttled", "measured while the clock was throttled"),
    ):
        if touched := [cell for cell in cells if cell.row[name]]:
            lines.append(f"{text}: {len(touched)} of {number_of(len(cells), 'cell')}")
    lines += [*incomparable(view), *_unjudged(view)]
    fell_back = [
        cell
        for cell in cells
        if (active := cell.text("engine_active")) and active.removesuffix("(compiled)") != cell.row["engine"]
    ]
    if fell_back:
        lines.append(
            f"another engine than asked for ran: {len(fell_back)} of {number_of(len(cells), 'cell')} "
            f"({_labels(fell_back)})"
        )
    apart = sorted({frozenset(found) for found in _engines(cells) if len(found) > 1}, key=sorted)
    lines += [f"no ratios of times between {' and '.join(sorted(found))}, which ran in one block" for found in apart]
    if view.environment.details.gpu and any(cell.row.get("device") == "cuda" for cell in cells):
        lines += view.environment.details.gpu.hints()
    lines += untold(view, cells)
    early = [cell for cell in cells if cell.row["stopped_by"] in ("max_epochs", "max_seconds")]
    if early:
        reasons = ", ".join(dict.fromkeys(str(cell.row["stopped_by"]) for cell in early))
        if "max_epochs" in reasons and not view.document.measure.max_epochs:
            last = max((epoch for cell in early for epoch in view.series(cell, "train_seconds")), default=0)
            reasons += f" (none was given: after {number_of(last, 'epoch')})"
        lines.append(
            f"stopped by {reasons} before the interval was reached: {len(early)} of {number_of(len(cells), 'cell')}"
        )
    return Section("Deviations", tuple(lines)) if lines else None


def incomparable(view: View) -> list[str]:
    """Why seconds are not comparable, and of how many cells."""
    cells = [cell for cell in view.cells if cell.row]
    disturbed: dict[str, list[Cell]] = {}
    for cell in cells:
        for reason in disturbances(cell):
            disturbed.setdefault(reason, []).append(cell)
    found = []
    for reason, those in disturbed.items():
        cores = [cores for cell in those if isinstance(cores := cell.row.get("other_cores"), float)]
        most = f", up to {max(cores):.1f} cores" if reason == USED and cores else ""
        found.append(f"seconds are {INCOMPARABLE}: {reason}{most} ({len(those)} of {number_of(len(cells), 'cell')})")
    return found


def _unjudged(view: View) -> Iterator[str]:
    """Of how many blocks it is not known whether others disturbed them, though that is recorded; they count as not."""
    looked_at = [cell for cell in view.cells if cell.ok and cell.count("jobs") is not None]
    short = {cell.row["block"] for cell in looked_at if cell.row["other_cores"] is None and not disturbances(cell)}
    if short:
        blocks = number_of(len({cell.row["block"] for cell in looked_at}), "block")
        tells = any(cell.row["other_cores"] is not None for cell in looked_at)
        yield (
            f"whether other processes disturbed the times of {len(short)} of {blocks} is not known: "
            f"in less than {LEAST_BLOCK_SECONDS:g} s they cannot be seen"
            + ("" if tells else ", or the machine does not tell")
        )


def _engines(cells: Iterable[Cell]) -> Iterable[set[str]]:
    """What really ran in each block whose cells asked for the same engine."""
    found = defaultdict[tuple[object, object], set[str]](set)
    for cell in cells:
        if cell.ok and (active := cell.text("engine_active")):
            found[cell.row["block"], cell.row["engine"]].add(active)
    return found.values()


def unfinished(view: View) -> Section | None:
    """Cells without a whole measurement, and why; None where every cell has one."""
    titles = {cell.key: group.title for group in view.layout.groups for cell in group.cells}
    places: dict[tuple[str, str, str, str, str], list[Cell]] = {}
    for cell in view.cells:
        if not cell.ok:
            place = (titles[cell.key], cell.label, str(cell.batch_size), cell.status, cell.text("message"))
            places.setdefault(place, []).append(cell)
    if not places:
        return None
    entries = tuple(_not_finished(cell, titles[cell.key]) for cells in places.values() for cell in cells)
    rows: _Rows = {
        ((title,), (label,), (size,), (_seeds(c), *why)): c for (title, label, size, *why), c in places.items()
    }
    for column in (2, 1, 0):
        rows = _merged(rows, column)
    several = len(view.layout.groups) > 1
    table = []
    for (settings, methods, sizes, why), cells in rows.items():
        logs = dict.fromkeys(filter(None, (cell.text("log") for cell in cells)))
        where = ["; ".join(_first(settings))] if several else []
        table.append((*where, ", ".join(methods), ", ".join(sizes), *why, ", ".join(_first(list(logs)))))
    columns = (*(["settings"] if several else []), "method", "N", "seeds", "status", "message", "log")
    return Section("Not measured to the end", tables=(Table("", columns, tuple(table), (), entries),))


def _merged(rows: _Rows, column: int) -> _Rows:
    """Rows that are alike in every other column, as one."""
    alike: dict[tuple[tuple[str, ...], ...], list[tuple[tuple[str, ...], ...]]] = {}
    for place in rows:
        alike.setdefault((*place[:column], *place[column + 1 :]), []).append(place)
    return {
        (*rest[:column], tuple(name for place in places for name in place[column]), *rest[column:]): [
            cell for place in places for cell in rows[place]
        ]
        for rest, places in alike.items()
    }


def _not_finished(cell: Cell, group: str) -> Entry:
    text = "; ".join(filter(None, map(cell.text, ("status", "message", "log")))) or cell.status
    return Place("not finished", group, cell.label, cell.batch_size).entry(f"seed {cell.seed}", text=text)


def remarks(view: View) -> Section | None:
    """What cells that were measured to their end have to say, such as the rate at which their images came."""
    said: dict[str, list[Cell]] = {}
    for cell in view.cells:
        if cell.ok and (message := cell.text("message")):
            said.setdefault(message, []).append(cell)
    lines = [f"{message} ({_labels(cells)})" for message, cells in list(said.items())[:_SHOWN]]
    return Section("Remarks", tuple(lines)) if lines else None


def strays(view: View) -> Section | None:
    """Cells in the folder that the suite, as it is now, does not name."""
    places: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in view.strays:
        places.setdefault((cell.label, str(cell.batch_size), cell.status), []).append(cell)
    rows = tuple(
        (label, size, _seeds(cells), status, ", ".join(_first([cell.key for cell in cells])))
        for (label, size, status), cells in places.items()
    )
    entries = tuple(
        Place("not part of the suite", "", cell.label, cell.batch_size).entry(cell.key, text=cell.status)
        for cell in view.strays
    )
    columns = ("method", "N", "seeds", "status", "keys")
    return Section("Not part of the suite", tables=(Table("", columns, rows, (), entries),)) if rows else None


def damaged(entries: Sequence[tuple[Path, str]]) -> Section | None:
    """What could not be trusted or was not whole; left alone and left out."""
    rows = tuple(("/".join(path.parts[-4:]), reason) for path, reason in entries)
    left = tuple(Place("left out").entry(place, text=reason) for place, reason in rows)
    return Section("Left out", tables=(Table("", ("file", "why"), rows, (), left),)) if rows else None


def _statuses(cells: Sequence[Cell]) -> str:
    return f"{len(cells)}: {tallied([cell.status for cell in cells])}" if cells else "0"


def _hardware_name(view: View) -> str:
    hardware = view.environment.hardware
    used = [cell.settings.get("device") for cell in view.cells]
    name = hardware.gpu if "cuda" in used else None
    return str(name or hardware.cpu or "an unknown machine")


def _machine(view: View) -> Iterable[str]:
    for name, facts in (("machine", view.environment.hardware), ("software", view.environment.software)):
        known = [f"{key} {told(value)}" for key, value in facts.document().items() if value is not None]
        yield f"{name}: {', '.join(known) or 'unknown'}"


def _measuring(view: View) -> Iterable[str]:
    turns = view.document.measure.interleave
    told_turns = f"in turn, epoch by epoch, over {told(turns)}" if turns else "each cell alone"
    warmup = view.document.measure.warmup_epochs or 0
    yield f"measured: {told_turns}; {told(warmup)} warm-up epoch{'' if warmup == 1 else 's'}, not counted"


def _provenance(cells: Sequence[Cell]) -> Iterable[str]:
    for name in ("bnpbench", "commit"):
        if found := dict.fromkeys(filter(None, (cell.text(name) for cell in cells))):
            yield f"{name}: {', '.join(_first(list(found)))}"
    instants = [cell.row.get("finished") for cell in cells]
    days = sorted(f"{instant:%Y-%m-%d}" for instant in instants if isinstance(instant, datetime))
    if days:
        yield f"days: {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "")


def _seeds(cells: Sequence[Cell]) -> str:
    return span(cell.seed for cell in cells)


def _labels(cells: Sequence[Cell]) -> str:
    return ", ".join(_first(list(dict.fromkeys(cell.label for cell in cells))))


def _of(value: str, cells: Sequence[Cell], view: View) -> str:
    """Whose a value is, in brackets; nothing where all cells have it, or it is what a group is called."""
    groups = [group for group in view.layout.groups if {*group.cells} <= {*cells}]
    if sum(len(group.cells) for group in groups) < len(cells):
        return f" ({_whose(cells, view)})"
    titles = [group.title for group in groups]
    said = titles == [value] or len(titles) == len(view.layout.groups)
    return "" if said else f" ({'; '.join(_first(titles))})"


def _whose(cells: Sequence[Cell], view: View) -> str:
    """Whose a value is: whole methods, whole batch sizes, then single places."""
    everything = dict.fromkeys((cell.label, cell.batch_size) for cell in view.cells)
    own = dict.fromkeys((cell.label, cell.batch_size) for cell in cells)
    if own == everything:
        return "some cells of every method"
    names = []
    for index, text in ((0, "{}"), (1, "N = {}")):
        for name in dict.fromkeys(place[index] for place in own):
            whole = [place for place in everything if place[index] == name]
            if all(place in own for place in whole):
                names.append(text.format(name))
                own = {place: None for place in own if place[index] != name}
    return ", ".join(_first([*names, *(f"{label} at {size}" for label, size in own)]))


def _first(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], f"and {more} more"] if more > 0 else list(texts)
