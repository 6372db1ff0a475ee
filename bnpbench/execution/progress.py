"""What a run says while it runs: to stderr, a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bnpbench.suite import Block

LINE_EVERY = 60.0  # seconds between plain lines


class Progress(Protocol):
    """What a sweep tells."""

    def start(self, blocks: Sequence[Block]) -> None: ...
    def skipped(self, block: Block) -> None: ...
    def epoch(self, block: Block, key: str, row: Mapping[str, Any]) -> None: ...
    def finished(self, block: Block, records: Mapping[str, Mapping[str, Any]]) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Says nothing."""

    def start(self, blocks: Sequence[Block]) -> None:
        pass

    def skipped(self, block: Block) -> None:
        pass

    def epoch(self, block: Block, key: str, row: Mapping[str, Any]) -> None:
        pass

    def finished(self, block: Block, records: Mapping[str, Mapping[str, Any]]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class Reporter(Silent):
    """Counts cells and epochs, and estimates the time left from the epochs measured so far.

    An epoch's work is taken as its number of steps: a cell of batch size 1 weighs as much as it takes.
    """

    def __init__(self, now: Any = time.monotonic) -> None:
        self.now = now
        self.worked = 0.0
        self.begin: float | None = None
        self.line = "no epoch yet"

    def start(self, blocks: Sequence[Block]) -> None:
        self.labels = {cell.key: f"{cell.label} N={cell.settings.batch_size}" for b in blocks for cell in b.cells}
        self.share = {cell.key: 1 / cell.settings.batch_size for b in blocks for cell in b.cells}
        self.epochs = {cell.key: cell.settings.epochs for b in blocks for cell in b.cells}
        self.seen: dict[str, int] = dict.fromkeys(self.labels, 0)
        self.cells = len(self.labels)
        self.done = self.failed = self.kept = 0
        self.worked = 0.0
        self.work = sum(self.share[k] * self.epochs[k] for k in self.labels)
        self.begin = self.now()
        self.show()

    def skipped(self, block: Block) -> None:
        self.kept += len(block.cells)
        self.work -= sum(self.share[c.key] * self.epochs[c.key] for c in block.cells)

    def epoch(self, block: Block, key: str, row: Mapping[str, Any]) -> None:
        if row["epoch"] > self.seen[key]:
            self.seen[key] = row["epoch"]
            self.worked += self.share[key]
        self.line = f"{self.labels[key]}: epoch {row['epoch']}, loss {row['train_loss']:.4g}, test accuracy " + (
            f"{row['test_accuracy']:.4f}"
        )
        self.show()

    def finished(self, block: Block, records: Mapping[str, Mapping[str, Any]]) -> None:
        for key, record in records.items():
            self.done += 1
            self.worked += self.share[key] * (self.epochs[key] - self.seen[key])  # what a cell did not use
            if record["status"] in ("oom", "timeout", "crashed", "error"):
                self.failed += 1
                self.note(f"{self.labels[key]}: {record['status']}: {record['message']}")
        self.show()

    def left(self) -> float | None:
        """Seconds left, from the rate of work so far; None before the first epoch."""
        if self.begin is None or not self.worked:
            return None
        elapsed: float = self.now() - self.begin
        return elapsed * max(self.work - self.worked, 0) / self.worked

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

    def __init__(self, now: Any = time.monotonic) -> None:
        super().__init__(now)
        self.said = self.now()

    def finished(self, block: Block, records: Mapping[str, Mapping[str, Any]]) -> None:
        super().finished(block, records)
        for key, record in records.items():
            print(f"{self.labels[key]} seed={record['seed']}: {record['status']} ({self.status()})", file=sys.stderr)
        self.said = self.now()

    def show(self) -> None:
        if self.now() - self.said >= LINE_EVERY:
            self.said = self.now()
            print(f"{self.line} ({self.status()})", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    def stop(self) -> None:
        if self.kept:
            print(f"{self.kept} of {self.cells} cells were finished before and are kept", file=sys.stderr)


class Live(Reporter):
    """A progress bar and a status line on a terminal."""

    def __init__(self, now: Any = time.monotonic) -> None:
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
        share = min(self.worked / self.work, 1) if self.work > 0 else 1
        width = 30
        bar = "█" * round(share * width) + "░" * (width - round(share * width))
        self.live.update(self.text(f"{bar} {self.status()}\n{self.line}"))

    def note(self, text: str) -> None:
        self.console.print(self.text(f"warning: {text}"))

    def stop(self) -> None:
        self.live.stop()
        if self.kept:
            self.console.print(self.text(f"{self.kept} of {self.cells} cells were finished before and are kept"))


def duration(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
