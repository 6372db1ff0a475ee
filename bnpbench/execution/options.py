"""How a suite is run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bnpbench.cache import expanded
from bnpbench.suite import Cell, Suite


@dataclass(frozen=True)
class Options:
    """How a suite is run; none of it is a setting of a cell but ``device``, ``epochs`` and the threads that
    ``jobs`` leaves.

    Attributes:
        out: folder of the results.
        device: auto, cpu, cuda or cuda:i.
        only: filters, ``KEY=VALUE,...``; alternatives within one, all of them together.
        seeds: the first so many of the seed axis.
        epochs: instead of the suite's.
        data_dir: folder of the data sets.
        offline: fetch nothing.
        fresh: measure finished cells again.
        timeout: seconds a cell.
        jobs: blocks at once; on a cluster, on each node without a GPU.
        shard: (i, n): every n-th block, from the i-th (1 to n).
        cluster: a Ray cluster instead of this machine: HOST:PORT of its head, ``auto`` for one that runs here,
            ``local`` to start one here.
    """

    out: Path = Path("results")
    device: str = "auto"
    only: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None
    data_dir: Path | None = None
    offline: bool = False
    fresh: bool = False
    timeout: float | None = None
    jobs: int = 1
    shard: tuple[int, int] | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", expanded(self.out))
        object.__setattr__(self, "data_dir", self.data_dir and expanded(self.data_dir))

    def selection(self, device: Literal["cpu", "cuda"], threads: int) -> Selection:
        """The cells that are asked for, where it is known what ``auto`` stands for."""
        return Selection(device, threads, self.only, self.seeds, self.epochs)


@dataclass(frozen=True)
class Selection:
    """Cells of a suite.

    Attributes:
        device, threads: what ``auto`` stands for.
        only, seeds, epochs: as of ``Options``.
    """

    device: Literal["cpu", "cuda"]
    threads: int
    only: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None

    @property
    def whole(self) -> Selection:
        """All cells of the suite, where these are some of them."""
        return replace(self, only=(), seeds=None)

    def cells(self, suite: Suite) -> tuple[Cell, ...]:
        """See ``Suite.cells``."""
        return suite.cells(
            device=self.device, threads=self.threads, only=self.only, seeds=self.seeds, epochs=self.epochs
        )

    def finals(self, suite: Suite, scores: Mapping[str, float | None]) -> tuple[Cell, ...]:
        """See ``Suite.finals``."""
        return suite.finals(
            scores, device=self.device, threads=self.threads, only=self.only, seeds=self.seeds, epochs=self.epochs
        )


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes:
        finished: blocks measured now.
        skipped: blocks that were finished before.
        failed: cells that did not end as ok, diverged or not-applicable.
        environments: ids of those that it ran in.
    """

    finished: int
    skipped: int
    failed: int
    environments: frozenset[str]

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.finished + other.finished,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.environments | other.environments,
        )
