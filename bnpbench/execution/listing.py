"""What a suite would run, about how long it would take here, and whether every network of it can be built."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from tabulate import tabulate

from bnpbench.errors import BnpbenchError, SuiteError
from bnpbench.execution.children import ask, start_forkserver
from bnpbench.execution.messages import Preflight
from bnpbench.execution.precheck import likely_device
from bnpbench.execution.progress import duration
from bnpbench.results import read_results
from bnpbench.sites import Misfit
from bnpbench.suite import Cell, Suite, misfit, unchecked
from bnpbench.text import plain

ERROR = 3  # exit code, as of a run


def listing(
    suite: Suite, out: Path, *, only: tuple[str, ...] = (), seeds: int | None = None, epochs: int | None = None
) -> str:
    """The suite's cells, one line for each setting of all seeds, and the time they would take one after another.

    Args:
        suite: whose cells.
        out: earlier results, from which the time of a like cell is taken.
        only, seeds, epochs: as of ``run``.
    """
    cells = cells_of(suite, only=only, seeds=seeds, epochs=epochs)
    known = _seconds_an_epoch(out)
    rows: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        s = cell.settings
        rows[(cell.label, s.dataset.kind, s.network.kind, s.batch_size, s.optimizer.lr, s.epochs)].append(cell)
    table = [
        (
            *(plain(str(name)) for name in names),
            ", ".join(dict.fromkeys(str(c.settings.seed) for c in group)),
            str(len(group)),
            _told(_estimate(group, known)),
        )
        for names, group in rows.items()
    ]
    heads = ["method", "data", "network", "batch size", "learning rate", "epochs", "seeds", "cells", "time"]
    blocks = len(suite.blocks(cells))
    total, unknown = _estimate(cells, known)
    note = f", and {unknown} cells of which no like was measured here" if unknown else ""
    end = f"time: about {duration(total)}{note}" if total else "time: unknown, nothing like it was measured here yet"
    return "\n".join(
        [
            f"{plain(suite.name)}: {len(cells)} {'trials' if suite.select else 'cells'} in {blocks} blocks, "
            f"{len(suite.claims)} claims",
            *([_finals(suite)] if suite.select else []),
            "",
            tabulate(table, heads, tablefmt="github", disable_numparse=True),
            "",
            end,
            *(f"not applicable: {line}" for line in by_reason(_unfit(cells))),
            *(f"warning: {plain(doubt)}" for doubt in suite.warnings(cells)),
            _left(suite, cells),
        ]
    )


@dataclass(frozen=True)
class Built:
    """What came of it: lines for a person, and 3 where something cannot be built, else 0."""

    lines: tuple[str, ...]
    exit_code: int

    def text(self) -> str:
        """For a person."""
        return "\n".join(self.lines)


def build(suite: Suite, data_dir: Path | None, *, only: tuple[str, ...] = (), seeds: int | None = None) -> Built:
    """Build the suite's cells without their data, but for image folders, whose classes decide the network.

    Args:
        suite: whose cells.
        data_dir: folder of the data sets.
        only, seeds: as of ``run``.

    Raises:
        DataError: an image folder is not there.
    """
    cells = cells_of(suite, only=only, seeds=seeds)
    start_forkserver()
    costs = ask(Preflight(cells, data_dir, offline=True, fetch=False), suite.plugins)
    unfit = [(cell, reason) for cell in cells if (reason := costs[cell.key].not_applicable)]
    faulty = [(cell, reason) for cell in cells if (reason := costs[cell.key].uncounted)]
    lines = [f"built: {len(cells) - len(faulty)} of {len(cells)} cells"]
    lines += [f"not applicable: {line}" for line in by_reason(unfit)]
    lines += [f"not built: {line}" for line in by_reason(faulty)]
    return Built(tuple(lines), ERROR if faulty else 0)


def cells_of(
    suite: Suite, *, only: tuple[str, ...] = (), seeds: int | None = None, epochs: int | None = None
) -> tuple[Cell, ...]:
    """The suite's cells as this machine would probably run them; see ``Suite.cells``."""
    threads = psutil.cpu_count(logical=False) or 1
    return suite.cells(device=likely_device("auto"), threads=threads, only=only, seeds=seeds, epochs=epochs)


def by_reason(cells: Iterable[tuple[Cell, str]]) -> list[str]:
    """A line for each reason and method: how many cells, and why."""
    counts = Counter((cell.label, reason) for cell, reason in cells)
    return [f"{plain(label)}, {n} cell{'' if n == 1 else 's'}: {plain(why)}" for (label, why), n in counts.items()]


def _unfit(cells: Iterable[Cell]) -> Iterable[tuple[Cell, str]]:
    known: dict[Any, Misfit | None] = {}
    for cell in cells:
        decides = cell.settings.only("fits")
        if decides not in known:
            known[decides] = misfit(cell.settings)
        if (fault := known[decides]) is not None:
            yield cell, fault.reason


def _left(suite: Suite, cells: Iterable[Cell]) -> str:
    """What was not looked at."""
    built = dict.fromkeys(plain(text) for cell in cells if (text := unchecked(cell.settings)))
    parts = [f"{'; '.join(built)} (--build looks)"] if built else []
    parts.append("devices, data and free space (run looks before it starts)")
    if suite.plugins and not suite.reads:
        parts.append("files that plugins read: name them by `reads`, or their change is not seen")
    return f"left unchecked: {'; '.join(parts)}"


def _finals(suite: Suite) -> str:
    assert suite.select is not None
    return (
        f"finals: chosen later, the best {suite.select.over} of each by {suite.select.by}, "
        f"on {len(suite.seeds())} seeds and the whole training set"
    )


def _seconds_an_epoch(out: Path) -> dict[str, float]:
    """Median wall seconds an epoch of every kind of cell that was measured on this folder's machines."""
    try:
        cells = read_results(out).cells
    except BnpbenchError:
        return {}
    found = defaultdict(list)
    done = cells[(cells.status == "ok") & cells.wall_seconds.notna()]
    for text, seconds in zip(done.settings, done.wall_seconds, strict=True):
        with suppress(SuiteError):  # measured by another version
            epochs = Cell.from_canonical(text).settings.epochs
            found[_likeness(json.loads(text))].append(seconds / epochs)
    return {kind: median(values) for kind, values in found.items()}


def _likeness(settings: dict[str, Any]) -> str:
    """What cells that take about the same time have in common. Not the threads: `--jobs` shares them out."""
    kept = {name: value for name, value in settings.items() if name not in ("seed", "epochs", "threads")}
    kept["optimizer"] = {name: value for name, value in settings["optimizer"].items() if name != "lr"}
    return json.dumps(kept, sort_keys=True)


def _estimate(cells: list[Cell] | tuple[Cell, ...], known: dict[str, float]) -> tuple[float, int]:
    """Seconds of the cells whose like is known, and how many are not."""
    seconds = [known.get(_likeness(json.loads(cell.canonical))) for cell in cells]
    told = [s * cell.settings.epochs for s, cell in zip(seconds, cells, strict=True) if s is not None]
    return sum(told), len(cells) - len(told)


def _told(estimate: tuple[float, int]) -> str:
    seconds, unknown = estimate
    return "?" if unknown else duration(seconds)
