"""What a run says while it runs: to stderr, a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from bnpbench.records.rows import CellRow, EpochRow
from bnpbench.suite import Block, Cell, differing, telling, told
from bnpbench.suite.explain import listed
from bnpbench.suite.settings import having
from bnpbench.text import plain

LINE_EVERY = 60.0  # seconds between plain lines


class Progress:
    """What a sweep tells, here to nobody."""

    def start(self, blocks: Sequence[Block]) -> None:
        """So many blocks are looked at; those that are finished are told next."""

    def skipped(self, block: Block) -> None:
        """It was finished before."""

    def epoch(self, block: Block, key: str, row: EpochRow) -> None:
        """An epoch of the cell ``key`` is measured."""

    def finished(self, block: Block, records: Mapping[str, CellRow]) -> None:
        """It is written: its rows of the ``cells`` table, by key."""

    def note(self, text: str) -> None:
        """What a person should know."""

    def stop(self) -> None:
        """The last of the blocks is done, or the run ends early."""


class Reporter(Progress):
    """Counts cells and epochs, and estimates the time left from the epochs measured so far.

    An epoch takes as long as those measured with its batch size took, or with the nearest that was measured.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.begin: float | None = None
        self.line = "no epoch yet"
        self.measured: Counter[int] = Counter()  # epochs by batch size
        self.seconds: dict[int, float] = defaultdict(float)  # what these took
        self.ahead: Counter[int] = Counter()  # epochs by batch size

    def start(self, blocks: Sequence[Block]) -> None:
        cells = [cell for block in blocks for cell in block.cells]
        self.labels = _labels(cells)
        self.sizes = {cell.key: cell.settings.batch_size for cell in cells}
        self.epochs = {cell.key: cell.settings.epochs for cell in cells}
        self.seen: dict[str, int] = dict.fromkeys(self.labels, 0)
        self.cells = len(self.labels)
        self.open_ended = any(block.measure.interval is not None for block in blocks)
        self.done = self.failed = self.kept = 0
        self.ahead.clear()
        for key, size in self.sizes.items():
            self.ahead[size] += self.epochs[key]
        self.begin = self.now() if self.begin is None else self.begin
        self.show()

    def skipped(self, block: Block) -> None:
        self.kept += len(block.cells)
        for cell in block.cells:
            self._pass(cell.key, self.epochs[cell.key])

    def epoch(self, block: Block, key: str, row: EpochRow) -> None:
        self.measured[self.sizes[key]] += 1
        self.seconds[self.sizes[key]] += row["train_seconds"]
        self._pass(key, row["epoch"])
        self.line = f"{self.labels[key]}: epoch {row['epoch']}, loss {row['train_loss']:.4g}, test accuracy " + (
            f"{row['test_accuracy']:.4f}"
        )
        self.show()

    def finished(self, block: Block, records: Mapping[str, CellRow]) -> None:
        alike: dict[str, list[str]] = {}
        for key, record in records.items():
            self.done += 1
            self._pass(key, self.epochs[key])
            if record["status"] in ("oom", "timeout", "crashed", "error"):
                self.failed += 1
                alike.setdefault(f"{record['status']}: {record['message']}", []).append(self.labels[key])
        for reason, labels in alike.items():
            self.note(f"{listed(dict.fromkeys(labels))}: {reason}")
        self.show()

    def _pass(self, key: str, epoch: int) -> None:
        """The epochs up to this one are not ahead any more: measured now or before, or not needed."""
        epoch = min(epoch, self.epochs[key])  # where intervals decide, there may be more than were foreseen
        self.ahead[self.sizes[key]] -= max(epoch - self.seen[key], 0)
        self.seen[key] = max(epoch, self.seen[key])

    def share(self) -> float:
        """The part of this run's epochs that is over, by the time they take."""
        ahead = sum(self._an_epoch(size) * epochs for size, epochs in self.ahead.items())
        over = sum(self.seconds.values())
        return over / (over + ahead) if ahead else 1.0

    def _an_epoch(self, batch_size: int) -> float:
        if not self.measured:
            return 1.0
        nearest = min(self.measured, key=lambda size: abs(math.log(size / batch_size)))
        return self.seconds[nearest] / self.measured[nearest]

    def left(self) -> float | None:
        """Seconds left; None before the first epoch, and where intervals decide when the last cells end."""
        share = self.share()
        if self.begin is None or not share or (self.open_ended and share == 1 and self.done + self.kept < self.cells):
            return None
        elapsed = self.now() - self.begin
        return elapsed * (1 - share) / share

    def show(self) -> None:
        """Put the state where the user sees it."""

    def status(self) -> str:
        """One line on how far the run is."""
        parts = [f"{self.done + self.kept}/{self.cells} cells"]
        if self.kept:
            parts.append(f"{self.kept} finished before")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if (left := self.left()) is not None and self.done + self.kept < self.cells:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)


class Lines(Reporter):
    """Plain lines on stderr: one a cell, and one a minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self.said = self.now()

    def finished(self, block: Block, records: Mapping[str, CellRow]) -> None:
        super().finished(block, records)
        for key, record in records.items():
            print(f"{self.labels[key]} seed={record['seed']}: {record['status']} ({self.status()})", file=sys.stderr)
        self.said = self.now()

    def show(self) -> None:
        if self.now() - self.said >= LINE_EVERY:
            self.said = self.now()
            print(f"{self.line} ({self.status()})", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"warning: {plain(text)}", file=sys.stderr)

    def stop(self) -> None:
        if self.kept:
            print(f"{self.kept} of {self.cells} cells were finished before and are kept", file=sys.stderr)


class Live(Reporter):
    """A progress bar and a status line on a terminal."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.text import Text

        self.text = Text
        self.console = Console(stderr=True, markup=False, highlight=False)
        self.live = RichLive(console=self.console, refresh_per_second=4, transient=True)

    def start(self, blocks: Sequence[Block]) -> None:
        self.live.start()
        super().start(blocks)

    def show(self) -> None:
        share = self.share()
        width = 30
        bar = "█" * round(share * width) + "░" * (width - round(share * width))
        self.live.update(self.text(f"{bar} {self.status()}\n{self.line}"))

    def note(self, text: str) -> None:
        self.console.print(self.text(f"warning: {plain(text)}"))

    def stop(self) -> None:
        self.live.stop()
        if self.kept:
            self.console.print(self.text(f"{self.kept} of {self.cells} cells were finished before and are kept"))


def _labels(cells: Sequence[Cell]) -> dict[str, str]:
    """Key to what a line calls the cell: method, batch size, and the settings that tell it from its sisters."""
    places = [(cell.label, cell.settings.batch_size) for cell in cells]
    settings = differing([cell.data for cell in cells], having("axis"))
    paths = telling([(*place, cell.settings.seed) for place, cell in zip(places, cells, strict=True)], settings)
    names = [f"{label} N={size}" for label, size in places]
    for path in paths:
        names = [f"{name} {path}={told(value)}" for name, value in zip(names, settings[path], strict=True)]
    return {cell.key: plain(name) for cell, name in zip(cells, names, strict=True)}


def duration(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
