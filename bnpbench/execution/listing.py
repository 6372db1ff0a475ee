"""What a suite would run, about how long it would take here, whether every network of it can be built, and what two
eager steps of every distinct cell show."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bnpbench.datasets import storage
from bnpbench.display import Count, Display
from bnpbench.errors import BnpbenchError, DeviceError, SuiteError
from bnpbench.execution.children import ChildDied, ask, start_forkserver
from bnpbench.execution.executor import modules_for, usable_cores
from bnpbench.execution.messages import Describe, Phase, Preflight, Smoke, Tried
from bnpbench.execution.options import Selection, check_cuda_only, resolve_device
from bnpbench.execution.progress import stages
from bnpbench.results import FINISHED, read_results
from bnpbench.sites import Misfit
from bnpbench.suite import Cell, PluginFile, Settings, Suite, differing, misfit, telling, told, unchecked
from bnpbench.suite.settings import FACTS, having
from bnpbench.text import DASH, duration, markdown, number_of, pipe_table, plain

ERROR = 3  # exit code, as of a run
EAGER = {"engine": "eager", "devices": 1, "deterministic": False}
"""How every cell is tried; of several devices, one does it all with the whole batch."""
ALIKE = {**EAGER, **{name: FACTS[name].free for name in having("repeats")}}
"""Settings in which cells may differ whose first two steps are the same, or another draw of the same."""
STATUSES = ("not finite", "error", "not applicable", "not tried")


@dataclass(frozen=True)
class Listed:
    """The cells of a suite, a row for each setting of all seeds.

    Attributes:
        head: what they are.
        columns, rows: of the table.
        notes: the time that they would take one after another, what does not apply, doubts, and what was not looked at.
    """

    head: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """For a file or a pipe."""
        heads, *rows = ([markdown(cell) for cell in row] for row in (self.columns, *self.rows))
        return "\n".join([*self.head, "", pipe_table(heads, rows), "", *self.notes])


def listing(selection: Selection, out: Path, *, built: bool = False) -> Listed:
    """The cells, and how long those that are not finished would take.

    Args:
        selection: the cells.
        out: earlier results, from which is taken what is finished, and the time of a like cell.
        built: whether the networks are built besides.
    """
    suite, cells = selection.suite, selection.cells
    known, finished = _measured(out)
    unfit = list(_unfit(cells))
    idle = {cell.key for cell, _ in unfit} | {cell.key for cell in cells if cell.key in finished}
    pairs = [(cell, cell.settings) for cell in cells]
    places = [(c.label, s.dataset.kind, s.network.kind, s.batch_size, s.optimizer.lr, s.epochs) for c, s in pairs]
    varying = differing([cell.data for cell in cells], ("seed",))
    others = telling(places, varying)
    rows: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell, place, *more in zip(cells, places, *(varying[path] for path in others), strict=True):
        rows[(*place, *(DASH if value is None else told(value) for value in more))].append(cell)
    table = [
        (
            *(plain(str(name)) for name in names),
            ", ".join(dict.fromkeys(str(c.settings.seed) for c in group)),
            str(len(group)),
            _told(group, {cell.key for cell, _ in unfit}, idle, known),
        )
        for names, group in rows.items()
    ]
    named = ("method", "data", "network", "batch size", "learning rate", "epochs", *others)
    heads = (*map(plain, named), "seeds", "cells", "time")
    blocks = len(suite.blocks(cells))
    done = sum(cell.key in finished for cell in cells)
    head = (
        f"{plain(suite.name)}: {number_of(len(cells), 'trial' if suite.select else 'cell')} in "
        f"{number_of(blocks, 'block')}, {number_of(len(suite.claims), 'claim')}"
        + (f"; {done} finished in {plain(str(out))}" if done else "")
    )
    notes = (
        _time([cell for cell in cells if cell.key not in idle], known),
        *(f"not applicable: {line}" for line in _by_reason(unfit)),
        *(f"warning: {plain(doubt)}" for doubt in suite.warnings(cells)),
        _left(suite, cells, built),
    )
    return Listed((head, *([_finals(suite)] if suite.select else [])), heads, tuple(table), notes)


def _time(cells: Sequence[Cell], known: dict[str, float]) -> str:
    if not cells:
        return "time: none, all cells are finished or not applicable"
    total, unknown = _estimate(cells, known)
    if not total:
        return "time: unknown, nothing like it was measured here yet"
    note = f", and {number_of(unknown, 'cell')} of which no like was measured here" if unknown else ""
    return f"time: about {duration(total)}{note}"


@dataclass(frozen=True)
class Built:
    """What came of it: lines for a person, and 3 where something cannot be built, else 0."""

    lines: tuple[str, ...]
    exit_code: int

    def text(self) -> str:
        """For a person."""
        return "\n".join(self.lines)


def build(selection: Selection, data_dir: Path | None, shown: Display | None = None) -> Built:
    """Build the cells without their data, but for image folders, whose classes decide the network.

    Args:
        selection: the cells.
        data_dir: folder of the data sets.
        shown: what goes on; None: nobody is told.

    Raises:
        DataError: an image folder is not there.
    """
    cells, suite = selection.cells, selection.suite
    stage = stages(shown or Display(), suite.name)
    stage(Phase("imports"))
    start_forkserver()
    request = Preflight(cells, data_dir, offline=True, fetch=False, whole=selection.whole.cells, probe=suite.probe)
    costs = ask(request, suite.plugins, told=stage)
    unfit = [(cell, reason) for cell in cells if (reason := costs[cell.key].not_applicable)]
    faulty = [(cell, reason) for cell in cells if (reason := costs[cell.key].uncounted)]
    lines = [f"built: {len(cells) - len(faulty)} of {number_of(len(cells), 'cell')}"]
    lines += [f"not applicable: {line}" for line in _by_reason(unfit)]
    lines += [f"not built: {line}" for line in _by_reason(faulty)]
    return Built(tuple(lines), ERROR if faulty else 0)


@dataclass(frozen=True)
class Smoked:
    """What two steps of a suite's distinct cells showed.

    Attributes:
        suite: its name.
        cells: of the suite, all of them.
        names: of the distinct cells, by their key.
        tried: of each of these.
        replaced: why a data set was replaced by generated examples, by its kind.
    """

    suite: str
    cells: int
    names: dict[str, str]
    tried: tuple[Tried, ...]
    replaced: dict[str, str]

    @property
    def exit_code(self) -> int:
        """3 if a cell raised an error, else 1 if a loss is not finite, else 0."""
        counts = self.counts()
        return 3 if counts["error"] else int(counts["not finite"] > 0)

    def counts(self) -> Counter[str]:
        """How many distinct cells have which status."""
        return Counter(one.status for one in self.tried)

    def text(self) -> str:
        """For a person: the counts, then each status but ``finite`` with its reasons and cells."""
        counts = self.counts()
        parts = [f"{counts[status]} {status}" for status in ("finite", *STATUSES) if counts[status]]
        cells = f"{len(self.tried)} distinct of {number_of(self.cells, 'cell')}"
        lines = [f"{plain(self.suite)}, two eager steps of {cells}: {', '.join(parts)}"]
        lines += [f"generated examples instead of {kind}: {reason}" for kind, reason in self.replaced.items()]
        reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in sorted(self.tried, key=lambda one: ("finite", *STATUSES).index(one.status)):
            if one.status != "finite":
                reasons[(one.status, one.message)].append(self.names[one.key])
        for (status, message), names in reasons.items():
            lines += ["", f"{status}: {plain(message)}", *(f"- {name}" for name in names)]
        return "\n".join(lines)


def smoke_check(selection: Selection, data_dir: Path | None = None, shown: Display | None = None) -> Smoked:
    """Take two eager steps of every distinct cell; a line for each.

    Checked are the losses of the first step, of the second, and of a forward pass after the second update. A data set
    that is not there is replaced by generated examples of its shape; nothing is fetched.

    Args:
        selection: the cells, whatever epochs they have.
        data_dir: folder of the data sets.
        shown: what goes on, and the lines; None: nobody is told.
    """
    suite, shown = selection.suite, shown or Display()
    stages(shown, suite.name)(Phase("imports"))
    start_forkserver(modules_for(suite))
    environment = ask(Describe())
    gpus = environment.hardware.gpus
    cells = selection.on(resolve_device("auto", gpus), len(usable_cores(environment))).cells
    refused, chosen = _distinct(cells, gpus)
    names = _names([*chosen, *(cell for cell, _ in refused)])
    tried = [Tried(cell.key, "not tried", reason) for cell, reason in refused]
    tried += _try(suite.name, chosen, names, data_dir, suite.plugins, shown)
    root = storage.root(data_dir)
    datasets = {cell.settings.dataset.kind: type(cell.settings.dataset) for cell in chosen}
    replaced = {kind: reason for kind, cls in datasets.items() if (reason := cls.missing(root)) is not None}
    return Smoked(suite.name, len(cells), names, tuple(tried), replaced)


def _by_reason(cells: Iterable[tuple[Cell, str]]) -> list[str]:
    """A line for each reason and method: how many cells, and why."""
    counts = Counter((cell.label, reason) for cell, reason in cells)
    return [f"{plain(label)}, {number_of(n, 'cell')}: {plain(why)}" for (label, why), n in counts.items()]


def _unfit(cells: Iterable[Cell]) -> Iterable[tuple[Cell, str]]:
    known: dict[Any, Misfit | None] = {}
    for cell in cells:
        decides = cell.settings.only("fits")
        if decides not in known:
            known[decides] = misfit(cell.settings)
        if (fault := known[decides]) is not None:
            yield cell, fault.reason


def _left(suite: Suite, cells: Iterable[Cell], built: bool) -> str:
    """What was not looked at."""
    unbuilt = dict.fromkeys(plain(text) for cell in cells if not built and (text := unchecked(cell.settings)))
    if suite.probe is not None and not built:
        unbuilt[plain(f"whether the probe's layer {suite.probe.layer!r} has a neuron {suite.probe.neuron}")] = None
    parts = [f"{'; '.join(unbuilt)} (--build looks)"] if unbuilt else []
    parts.append("devices, data and free space (run looks before it starts)")
    if suite.plugins and not suite.reads:
        parts.append("files that plugins read: name them by `reads`, or their change is not seen")
    return f"left unchecked: {'; '.join(parts)}"


def _finals(suite: Suite) -> str:
    assert suite.select is not None
    return (
        f"finals: chosen later, the best {' and '.join(suite.select.axes)} of each by {suite.select.by}, "
        f"on {number_of(len(suite.seeds()), 'seed')} and the whole training set"
    )


def _measured(out: Path) -> tuple[dict[str, float], set[str]]:
    """Median wall seconds an epoch of every kind of cell that was measured on this folder's machines; and the keys of
    those that are finished."""
    try:
        cells = read_results(out).cells
    except BnpbenchError:
        return {}, set()
    found = defaultdict(list)
    done = cells[(cells.status == "ok") & cells.wall_seconds.notna()]
    for text, seconds in zip(done.settings, done.wall_seconds, strict=True):
        with suppress(SuiteError):  # measured by another version
            epochs = Cell.from_canonical(text).settings.epochs
            found[_likeness(json.loads(text))].append(seconds / epochs)
    return {kind: median(values) for kind, values in found.items()}, {*cells.key[cells.status.isin(FINISHED)]}


def _likeness(settings: dict[str, Any]) -> str:
    """What cells that take about the same time have in common. Not the threads: `--jobs` shares them out."""
    kept = {name: value for name, value in settings.items() if name not in having("repeats")}
    kept["optimizer"] = {name: value for name, value in settings["optimizer"].items() if name != "lr"}
    return json.dumps(kept, sort_keys=True)


def _estimate(cells: Sequence[Cell], known: dict[str, float]) -> tuple[float, int]:
    """Seconds of the cells whose like is known, and how many are not."""
    seconds = [known.get(_likeness(json.loads(cell.canonical))) for cell in cells]
    told = [s * cell.settings.epochs for s, cell in zip(seconds, cells, strict=True) if s is not None]
    return sum(told), len(cells) - len(told)


def _told(cells: Sequence[Cell], unfit: Set[str], idle: Set[str], known: dict[str, float]) -> str:
    """The time of a row, of those of its cells that a run would measure."""
    left = [cell for cell in cells if cell.key not in idle]
    if not left:
        return "not applicable" if all(cell.key in unfit for cell in cells) else "finished"
    seconds, unknown = _estimate(left, known)
    return "?" if unknown else duration(seconds)


def _distinct(cells: Iterable[Cell], gpus: int) -> tuple[list[tuple[Cell, str]], list[Cell]]:
    """One cell of each kind: those that only a GPU could run, with the reason, and the others, to be run eagerly."""
    kinds: dict[Settings, list[Cell]] = defaultdict(list)
    for cell in cells:
        kinds[cell.settings.model_copy(update=ALIKE)].append(cell)
    refused, chosen = [], []
    for alike in kinds.values():
        reasons = [_needs_cuda(cell.settings, gpus) for cell in alike]
        if None in reasons:
            cell = alike[reasons.index(None)]
            chosen.append(replace(cell, settings=cell.settings.model_copy(update=EAGER)))
        else:
            refused.append((alike[0], str(reasons[0])))
    return refused, chosen


def _needs_cuda(settings: Settings, gpus: int) -> str | None:
    """Why the cell cannot be tried here, or None."""
    if settings.device == "cuda" and not gpus:
        return 'device = "cuda": torch sees no CUDA device here'
    try:
        check_cuda_only([settings])
    except DeviceError as error:
        return str(error)
    return None


def _names(cells: Sequence[Cell]) -> dict[str, str]:
    """What a line calls each cell: method, network, data, batch size, learning rate, and what else tells it apart."""
    names = []
    for cell in cells:
        s = cell.settings
        network = s.network.model_dump(mode="json", exclude_defaults=True)
        told_network = ", ".join([network.pop("kind"), *(f"{name} = {told(value)}" for name, value in network.items())])
        place = f"batch size {s.batch_size}, learning rate {s.optimizer.lr:g}"
        names.append(f"{cell.label}: {told_network}; {s.dataset.kind}, {place}")
    settings = differing([cell.data for cell in cells], ("method", *having("repeats")))
    for path in telling(names, settings):
        names = [f"{name}, {path} = {told(value)}" for name, value in zip(names, settings[path], strict=True)]
    return {cell.key: plain(name) for cell, name in zip(cells, names, strict=True)}


def _try(
    suite: str,
    cells: Sequence[Cell],
    names: dict[str, str],
    data_dir: Path | None,
    plugins: tuple[PluginFile, ...],
    shown: Display,
) -> list[Tried]:
    """What a child process finds; where one dies, its cell has an error and another goes on with the next."""
    found: list[Tried] = []
    count = Count(shown, suite, "cells")

    def add(tried: Tried) -> None:
        found.append(tried)
        place = f"{suite} {len(found)}/{len(cells)}"
        shown.say(f"{place} {names[tried.key]}: {tried.status} ({tried.seconds:.1f} s)")
        count(len(found), len(cells))

    while len(found) < len(cells):
        try:
            ask(Smoke(tuple(cells[len(found) :]), data_dir), plugins, told=add)
        except ChildDied as death:
            add(Tried(cells[len(found)].key, "error", str(death)))
    return found
