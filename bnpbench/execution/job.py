"""A block while it is measured."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from bnpbench.execution.executor import Run, Worker
from bnpbench.results import Store
from bnpbench.suite import Block, Cell

PARTIAL_SECONDS = 1.0  # of epochs that need not be on the disk yet
PARTIAL_SHARE = 0.05  # of the time that writing them again and again may take
Row = dict[str, Any]


@dataclass
class Job:
    """A block being measured.

    Attributes:
        pieces: groups of members still to run, each in a process of its own: the whole block at first, then, if
            that process died, its members one by one.
        store: of the worker's environment.
        release: gives the block's lock back.
        unwritten_until: the epochs so far are not written again before.
    """

    block: Block
    worker: Worker
    store: Store
    release: contextlib.ExitStack
    pieces: deque[tuple[Cell, ...]]
    run: Run | None = None
    piece: tuple[Cell, ...] = ()
    deadline: float | None = None
    unwritten_until: float = 0.0
    epochs: dict[str, list[Row]] = field(default_factory=dict)
    steps: dict[str, list[Row]] = field(default_factory=dict)
    records: dict[str, Row] = field(default_factory=dict)
    answered: bool = False

    def keep(self, key: str) -> None:
        """Write the epochs so far of a long cell, all of them each time: seldom enough to stay cheap."""
        begin = time.monotonic()
        if begin >= self.unwritten_until:
            self.store.write_partial(key, self.epochs[key])
            took = time.monotonic() - begin
            self.unwritten_until = begin + max(PARTIAL_SECONDS, took / PARTIAL_SHARE)
