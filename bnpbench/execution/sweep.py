"""Blocks onto child processes: who runs, who waits, what is written when a block ends."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import connection
from typing import Any

from bnpbench.errors import BnpbenchError
from bnpbench.execution.children import Child
from bnpbench.execution.columns import identity
from bnpbench.execution.interruption import uninterrupted
from bnpbench.execution.messages import Done, Epoch, Finished, Refused, RunBlock
from bnpbench.execution.options import Options, Outcome
from bnpbench.execution.progress import Progress
from bnpbench.report.statistics import outliers
from bnpbench.results import FINISHED, Store
from bnpbench.suite import Block, Cell, PluginFile

BUSY_SECONDS = 0.5  # between looks at a block that another run is measuring
Row = dict[str, Any]


@dataclass
class Job:
    """A block being measured.

    Attributes:
        pieces: groups of members still to run, each in a process of its own: the whole block at first, then, if
            that process died, its members one by one.
        release: gives the block's lock back.
    """

    block: Block
    release: contextlib.ExitStack
    pieces: deque[tuple[Cell, ...]]
    slot: int
    child: Child | None = None
    piece: tuple[Cell, ...] = ()
    deadline: float | None = None
    epochs: dict[str, list[Row]] = field(default_factory=dict)
    steps: dict[str, list[Row]] = field(default_factory=dict)
    records: dict[str, Row] = field(default_factory=dict)
    answered: bool = False


class Sweep:
    """Runs blocks, ``options.jobs`` at once, and commits each when it is measured.

    Args:
        store: where the rows go; this process is the only writer of it.
        options: of the run.
        costs: what preflight found, by the cell's key.
        provenance: columns that are the same for every cell of the run.
        gpu: number of the CUDA device.
        progress: is told what happens.
        plugins: of the suite.
    """

    def __init__(
        self,
        store: Store,
        options: Options,
        costs: dict[str, Any],
        provenance: Row,
        gpu: int,
        progress: Progress,
        plugins: tuple[PluginFile, ...] = (),
    ) -> None:
        self.store, self.options, self.costs, self.provenance = store, options, costs, provenance
        self.gpu, self.progress, self.plugins = gpu, progress, plugins
        self.cores: int = store.environment["hardware"]["cores"]
        self.queue: deque[Block] = deque()
        self.running: list[Job] = []
        self.finished = self.skipped = self.failed = 0

    def run(self, blocks: Sequence[Block], done: Set[str]) -> Outcome:
        """Measure the blocks but those of the ids ``done``; on an interruption, keep what is and end the children."""
        self.progress.start(blocks)
        for block in blocks:
            if block.id in done:
                self._skip(block)
            else:
                self.queue.append(block)
        try:
            while self.queue or self.running:
                self._start()
                self._listen()
        except BaseException:
            self._abandon()
            raise
        finally:
            self.progress.stop()
        return Outcome(self.finished, self.skipped, self.failed)

    def _start(self) -> None:
        """Give every free slot a block; one that another run is measuring goes to the end of the queue."""
        for _ in range(len(self.queue)):
            free = set(range(self.options.jobs)) - {job.slot for job in self.running}
            if not free:
                return
            block = self.queue.popleft()
            release = contextlib.ExitStack()
            if not release.enter_context(self.store.lock(block.id, wait=False)):
                self.queue.append(block)
                continue
            if not self.options.fresh and self.store.finished(block.id, block.canonicals):  # by another run
                release.close()
                self._skip(block)
                continue
            job = Job(block, release, deque([block.cells]), min(free))
            self.running.append(job)
            self._launch(job)

    def _skip(self, block: Block) -> None:
        self.skipped += 1
        self.progress.skipped(block)

    def _launch(self, job: Job) -> None:
        """Start a process for the job's next piece."""
        job.piece, job.answered = job.pieces.popleft(), False
        log = self.store.log_path(job.block.id)
        log.touch()  # named in the results whatever becomes of the child
        request = RunBlock(
            block=job.block,
            cells=job.piece,
            costs={cell.key: self.costs[cell.key] for cell in job.piece},
            data_dir=self.options.data_dir,
            checkpoints=self.store.folder / "checkpoints" if len(job.block.cells) == 1 else None,
            fresh=self.options.fresh,
            cores=self._share(job.slot),
            gpu=self.gpu,
            log=f"logs/{log.name}",
        )
        job.child = Child(request, self.plugins, log)
        job.deadline = None
        if self.options.timeout is not None:
            job.deadline = time.monotonic() + self.options.timeout * len(job.piece)

    def _share(self, slot: int) -> tuple[int, ...] | None:
        """The cores of a slot; with one job the whole machine, unbound."""
        if self.options.jobs == 1:
            return None
        each = max(self.cores // self.options.jobs, 1)
        return tuple((slot * each + i) % self.cores for i in range(each))

    def _listen(self) -> None:
        """Wait for a message, a death, a deadline, or another run's lock, and deal with it."""
        if not self.running:
            if self.queue:
                time.sleep(BUSY_SECONDS)
            return
        deadlines = [job.deadline - time.monotonic() for job in self.running if job.deadline is not None]
        patience = min([max(d, 0) for d in deadlines] + [BUSY_SECONDS if self.queue else 3600])
        children = [job.child for job in self.running if job.child is not None]
        connection.wait([c.channel for c in children] + [c.process.sentinel for c in children], timeout=patience)
        for job in list(self.running):
            self._look_at(job)

    def _look_at(self, job: Job) -> None:
        assert job.child is not None
        alive = job.child.process.is_alive()  # asked first: what a dead process sent is all there
        for message in job.child.messages():
            self._take(job, message)
        if job.answered:
            job.child.process.join()
            self._next(job)
        elif not alive:
            job.child.process.join()
            self._died(job, "crashed", f"the process was {job.child.death()}")
        elif job.deadline is not None and time.monotonic() > job.deadline:
            job.child.kill()
            limit = f"{self.options.timeout:g} s a cell"
            self._died(job, "timeout", f"not done after {limit}; raise --timeout or shorten the cell")

    def _take(self, job: Job, message: Any) -> None:
        match message:
            case Epoch(key, row):
                rows = job.epochs.setdefault(key, [])
                rows[row["epoch"] - 1 :] = [row]  # told again where a rank died and all went back to a checkpoint
                if len(job.block.cells) == 1:
                    self.store.write_partial(key, rows)
                self.progress.epoch(job.block, key, row)
            case Finished(key, row, steps):
                job.records[key], job.steps[key] = {**row, **self.provenance}, steps
            case Done():
                job.answered = True
            case Refused(error):
                raise error

    def _died(self, job: Job, status: str, message: str) -> None:
        """The process of a piece is gone: a cell alone gets the status, a group runs again one by one."""
        if len(job.piece) == 1:
            cell = job.piece[0]
            job.records[cell.key] = self._bare_record(job, cell, status, message)
        else:
            for cell in job.piece:
                job.epochs.pop(cell.key, None)
                job.records.pop(cell.key, None)
            job.pieces.extend((cell,) for cell in job.piece)
            self.progress.note(f"{message}: the {len(job.piece)} cells of block {job.block.id} run again one by one")
        self._next(job)

    def _next(self, job: Job) -> None:
        """The next piece of a block, or its end."""
        assert job.child is not None
        job.child.kill()
        if job.pieces:
            self._launch(job)
            return
        self.running.remove(job)
        self._commit(job)
        self.finished += 1
        self.failed += sum(row["status"] not in FINISHED for row in job.records.values())
        self.progress.finished(job.block, job.records)

    def _commit(self, job: Job) -> None:
        for rows in job.epochs.values():
            for row, outlier in zip(rows, outliers([row["train_seconds"] for row in rows]), strict=True):
                row["outlier"] = outlier
        with uninterrupted():
            self.store.write_block(list(job.records.values()), job.epochs, job.steps)
            for key, row in job.records.items():
                if row["status"] in FINISHED:
                    (self.store.folder / "checkpoints" / f"{key}.pt").unlink(missing_ok=True)
            job.release.close()

    def _bare_record(self, job: Job, cell: Cell, status: str, message: str) -> Row:
        """The row of a cell whose process could not write it."""
        now = datetime.now(UTC)
        log = f"logs/{self.store.log_path(job.block.id).name}"
        return {
            **identity(cell, job.block, self.costs[cell.key].columns),
            "status": status,
            "message": message,
            "log": log,
            **self.provenance,
            "started": now,
            "finished": now,
        }

    def _abandon(self) -> None:
        """End all children; cells that were running are kept as interrupted, with the epochs they have."""
        for job in self.running:
            if job.child is not None:
                job.child.kill()
        for job in self.running:
            for cell in job.block.cells:
                if cell.key not in job.records:
                    job.records[cell.key] = self._bare_record(job, cell, "interrupted", "the run was stopped")
            with contextlib.suppress(BnpbenchError, OSError):  # what ended the run may be a full disk
                self._commit(job)
            job.release.close()
        self.running.clear()
