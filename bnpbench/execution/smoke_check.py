"""Two eager steps of every distinct cell of a suite, taken by a child process, and what is told of them."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bnpbench.datasets import storage
from bnpbench.errors import DeviceError
from bnpbench.execution.children import ChildDied, ask, start_forkserver
from bnpbench.execution.executor import modules_for, usable_cores
from bnpbench.execution.messages import Describe, Smoke, Tried
from bnpbench.execution.precheck import check_cuda_only, resolve_device
from bnpbench.results import differing, telling, told
from bnpbench.suite import Cell, PluginFile, Settings, Suite
from bnpbench.text import plain

EAGER = {"engine": "eager", "devices": 1, "deterministic": False}
"""How every cell is tried; of several devices, one does it all with the whole batch."""
ALIKE = {**EAGER, "seed": 1, "epochs": 1, "threads": 1}
"""Settings in which cells may differ whose first two steps are the same, or another draw of the same."""
STATUSES = ("not finite", "error", "not applicable", "not tried")


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
        cells = f"{len(self.tried)} distinct of {self.cells} cells"
        lines = [f"{plain(self.suite)}, two eager steps of {cells}: {', '.join(parts)}"]
        lines += [f"generated examples instead of {kind}: {reason}" for kind, reason in self.replaced.items()]
        reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in sorted(self.tried, key=lambda one: ("finite", *STATUSES).index(one.status)):
            if one.status != "finite":
                reasons[(one.status, one.message)].append(self.names[one.key])
        for (status, message), names in reasons.items():
            lines += ["", f"{status}: {plain(message)}", *(f"- {name}" for name in names)]
        return "\n".join(lines)


def smoke_check(
    suite: Suite, data_dir: Path | None = None, *, only: Sequence[str] = (), seeds: int | None = None
) -> Smoked:
    """Take two eager steps of every distinct cell; a line on stderr for each.

    Checked are the losses of the first step, of the second, and of a forward pass after the second update. A data set
    that is not there is replaced by generated examples of its shape; nothing is fetched.

    Args:
        suite: from ``load_suite``.
        data_dir: folder of the data sets.
        only, seeds: as of ``run``.
    """
    start_forkserver(modules_for(suite))
    environment = ask(Describe())
    gpus = environment["hardware"]["gpus"]
    threads = len(usable_cores(environment))
    cells = suite.cells(device=resolve_device("auto", gpus), threads=threads, only=only, seeds=seeds)
    refused, chosen = _distinct(cells, gpus)
    names = _names([*chosen, *(cell for cell, _ in refused)])
    tried = [Tried(cell.key, "not tried", reason) for cell, reason in refused]
    tried += _try(suite.name, chosen, names, data_dir, suite.plugins)
    root = storage.root(data_dir)
    datasets = {cell.settings.dataset.kind: type(cell.settings.dataset) for cell in chosen}
    replaced = {kind: reason for kind, cls in datasets.items() if (reason := cls.missing(root)) is not None}
    return Smoked(suite.name, len(cells), names, tuple(tried), replaced)


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
            chosen.append(Cell(cell.settings.model_copy(update=EAGER), cell.role))
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
    settings = differing([cell.data for cell in cells], ("method", "seed", "epochs", "threads"))
    for path in telling(names, settings):
        names = [f"{name}, {path} = {told(value)}" for name, value in zip(names, settings[path], strict=True)]
    return {cell.key: plain(name) for cell, name in zip(cells, names, strict=True)}


def _try(
    suite: str, cells: Sequence[Cell], names: dict[str, str], data_dir: Path | None, plugins: tuple[PluginFile, ...]
) -> list[Tried]:
    """What a child process finds; where one dies, its cell has an error and another goes on with the next."""
    found: list[Tried] = []

    def add(tried: Tried) -> None:
        found.append(tried)
        line = f"{suite} {len(found)}/{len(cells)} {names[tried.key]}: {tried.status} ({tried.seconds:.1f} s)"
        print(plain(line), file=sys.stderr, flush=True)

    while len(found) < len(cells):
        try:
            ask(Smoke(tuple(cells[len(found) :]), data_dir), plugins, told=add)
        except ChildDied as death:
            add(Tried(cells[len(found)].key, "error", str(death)))
    return found
