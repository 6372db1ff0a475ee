"""Blocks onto workers: who runs, who waits, what is written when a block ends, and where."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bnpbench.errors import BnpbenchError, WorkersLost
from bnpbench.execution import interruption
from bnpbench.execution.child import shorten
from bnpbench.execution.children import Child
from bnpbench.execution.executor import Executor, Worker
from bnpbench.execution.messages import Done, Epoch, Finished, Message, Note, Phase, Refused, RunBlock
from bnpbench.execution.options import Options
from bnpbench.execution.progress import Progress
from bnpbench.files import appending
from bnpbench.records.documents import Environment, SuiteRecord
from bnpbench.records.rows import CellRow, EpochRow, StepRow
from bnpbench.results import FINISHED, Store
from bnpbench.results.store import writing
from bnpbench.statistics.intervals import outliers
from bnpbench.suite import Block, Cell
from bnpbench.text import number_of

BUSY_SECONDS = 0.5  # between looks at a block that another run is measuring
LOOK_SECONDS = 2.0  # between looks at what tells nothing of itself: a log that grows, a signal that was lost
LONELY_SECONDS = 60.0  # that a cluster without a worker may take to get one
PARTIAL_SECONDS = 1.0  # of epochs that need not be on the disk yet
PARTIAL_SHARE = 0.05  # of the time that writing them again and again may take
LOSSES = 3  # of its worker, and a block is given up: it may be what takes the machine down


class Stores:
    """The results of a suite, by environment.

    Args:
        out: folder of all results.
        suite: the suite's name.
        environments: of the workers that are there at the start; equal ones share a folder.
        found: blocks that were found finished already, by environment and id; what is found is added.
    """

    def __init__(
        self, out: Path, suite: str, environments: Iterable[Environment], found: set[tuple[str, str]] | None = None
    ) -> None:
        self.out, self.suite = out, suite
        self.by_id = {e.id: Store(out, suite, e) for e in environments}
        self._found = set() if found is None else found

    @property
    def first(self) -> Store:
        return next(iter(self.by_id.values()))

    def create(self) -> None:
        """Make the folders. Raises ResultsError."""
        for store in self.by_id.values():
            store.create()

    def renew(self) -> bool:
        """Tidy the folders, and write down what was measured of their machines since, where all are there.

        Returns:
            Whether they are.

        Raises:
            ResultsError: nothing can be written.
        """
        stores = self.by_id.values()
        there = all(store.folder.is_dir() for store in stores)
        for store in stores if there else ():
            store.renew()
        return there

    def refuse_newer(self, cells: Iterable[Cell], document: SuiteRecord) -> None:
        """Raises ResultsError where a newer bnpbench wrote what a run of these cells would write over.

        Args:
            cells: of the run.
            document: of their suite, as ``suite.json`` will hold it.
        """
        self.first.refuse_newer_suite(document)
        keys = [cell.key for cell in cells]
        for store in self.by_id.values():
            store.refuse_newer(keys)

    def of(self, environment: Environment) -> Store:
        """The store of an environment; it is made where a late worker brings a new one. Raises ResultsError."""
        if environment.id not in self.by_id:
            self.by_id[environment.id] = Store(self.out, self.suite, environment).create()
        return self.by_id[environment.id]

    def finished(self, block: Block) -> bool:
        """Whether the block was measured in one of the environments."""
        for identity, store in self.by_id.items():
            if (identity, block.id) in self._found or store.finished(block.id, block.canonicals):
                self._found.add((identity, block.id))
                return True
        return False


@dataclass
class Job:
    """A block being measured.

    Attributes:
        request: for the whole of it.
        store: of the worker's environment.
        release: gives the block's lock back.
        pieces: groups of members still to run, each in a child of its own: the whole block at first, then, if that
            child died, its members one by one.
        unwritten_until: the epochs so far are not written again before.
    """

    request: RunBlock
    worker: Worker
    store: Store
    release: contextlib.ExitStack
    pieces: deque[tuple[Cell, ...]]
    child: Child | None = None
    piece: tuple[Cell, ...] = ()
    deadline: float | None = None
    unwritten_until: float = 0.0
    epochs: dict[str, list[EpochRow]] = field(default_factory=dict)
    steps: dict[str, list[StepRow]] = field(default_factory=dict)
    records: dict[str, CellRow] = field(default_factory=dict)
    answered: bool = False

    @property
    def block(self) -> Block:
        return self.request.block

    @property
    def log(self) -> Path:
        return self.store.log_path(self.block.id)

    def keep(self, key: str, now: Callable[[], float]) -> None:
        """Write the epochs so far of a long cell, all of them each time: seldom enough to stay cheap."""
        begin = now()
        if begin >= self.unwritten_until:
            self.store.write_partial(key, self.epochs[key])
            took = now() - begin
            self.unwritten_until = begin + max(PARTIAL_SECONDS, took / PARTIAL_SHARE)


class Sweep:
    """Runs blocks, one on each worker at a time, and commits each when it is measured.

    Args:
        stores: where the rows go; this process is the only writer of them.
        executor: has the workers.
        options: of the run.
        costs: what preflight found, by the cell's key.
        provenance: columns that are the same for every cell of the run.
        progress: is told what happens.
        now: the time in seconds.
    """

    def __init__(
        self,
        stores: Stores,
        executor: Executor,
        options: Options,
        costs: dict[str, Any],
        provenance: CellRow,
        progress: Progress,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stores, self.executor, self.options = stores, executor, options
        self.costs, self.provenance, self.progress = costs, provenance, progress
        self.now = now
        self.queue: deque[Block] = deque()
        self.running: list[Job] = []
        self.losses: Counter[str] = Counter()
        self.lonely_since: float | None = None
        self.failed = 0

    def run(self, blocks: Sequence[Block], done: Set[str]) -> int:
        """Measure the blocks but those of the ids ``done``; on an interruption, keep what is and end the rest.

        Returns:
            How many cells did not end as ok, diverged or not-applicable.
        """
        self.progress.start(blocks, self.costs)
        for block in blocks:
            if block.id in done:
                self.progress.skipped(block)
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
        return self.failed

    def _start(self) -> None:
        """Give every free worker a block; one that another run is measuring goes to the end of the queue."""
        for _ in range(len(self.queue)):
            busy = {job.worker for job in self.running}
            free = [worker for worker in self.executor.workers() if worker not in busy]
            if not free:
                return
            block = self.queue.popleft()
            worker = next((worker for worker in free if worker.takes(block)), None)
            store = None if worker is None else self.stores.of(worker.environment)
            release = contextlib.ExitStack()
            if worker is None or store is None or not release.enter_context(store.lock(block.id, wait=False)):
                self.queue.append(block)
                continue
            if not self.options.fresh and self.stores.finished(block):  # by another run
                release.close()
                self.progress.skipped(block)
                continue
            job = Job(self._request(block, worker, store), worker, store, release, deque([block.cells]))
            self.running.append(job)
            self._launch(job)

    def _request(self, block: Block, worker: Worker, store: Store) -> RunBlock:
        return RunBlock(
            block=block,
            cells=block.cells,
            costs={cell.key: self.costs[cell.key] for cell in block.cells},
            data_dir=self.options.data_dir,
            checkpoints=store.folder / "checkpoints" if len(block.cells) == 1 else None,
            fresh=self.options.fresh,
            cores=worker.cores,
            gpu=worker.gpu or 0,
            log=f"logs/{store.log_path(block.id).name}",
            jobs=worker.jobs,
        )

    def _launch(self, job: Job) -> None:
        """Start a child for the job's next piece."""
        job.piece, job.answered = job.pieces.popleft(), False
        self.progress.phase(job.block, Phase("start", key=job.piece[0].key))
        with writing(job.log):
            job.log.parent.mkdir(exist_ok=True)  # someone may have cleared the logs away
            os.close(appending(job.log))  # named in the results whatever becomes of the child
        job.child = self.executor.start(job.worker, replace(job.request, cells=job.piece), job.log)
        job.deadline = None
        if self.options.timeout is not None:
            job.deadline = self.now() + self.options.timeout * len(job.piece)

    def _listen(self) -> None:
        """Wait for a message, a death, a deadline, another run's lock or a new worker, and deal with it."""
        if not self.running:
            self._check_workers()
        deadlines = [job.deadline - self.now() for job in self.running if job.deadline is not None]
        patience = min([max(d, 0) for d in deadlines] + [BUSY_SECONDS if self.queue else LOOK_SECONDS])
        if self.running or self.queue:
            self.executor.wait([job.child for job in self.running], patience)
        interruption.check()
        for job in list(self.running):
            shorten(job.log)
            self._look_at(job)

    def _check_workers(self) -> None:
        """Raises WorkersLost where nothing can go on for long."""
        workers = self.executor.workers()
        if not self.queue or any(worker.takes(block) for block in self.queue for worker in workers):
            self.lonely_since = None
            return
        self.lonely_since = self.lonely_since or self.now()
        if self.now() - self.lonely_since > LONELY_SECONDS:
            count = sum(len(block.cells) for block in self.queue)
            raise WorkersLost(
                f"no worker is left for {number_of(count, 'cell')}; what was finished is kept, and the same command "
                "goes on from there once the cluster has workers again"
            )

    def _look_at(self, job: Job) -> None:
        assert job.child is not None
        alive = job.child.alive()  # asked first
        for message in job.child.messages():
            self._take(job, message)
        if job.answered:
            self._next(job)
        elif job.child.lost:
            self._lost(job)
        elif not alive:
            job.child.join()
            self._died(job, "crashed", f"the process was {job.child.death()}")
        elif job.deadline is not None and self.now() > job.deadline:
            job.child.kill()
            limit = f"{self.options.timeout:g} s a cell"
            self._died(job, "timeout", f"not done after {limit}; raise --timeout or shorten the cell")

    def _take(self, job: Job, message: Message | Done[None] | Refused) -> None:
        match message:
            case Phase():
                self.progress.phase(job.block, message)
            case Epoch(key, row):
                rows = job.epochs.setdefault(key, [])
                rows[row["epoch"] - 1 :] = [row]  # told again where a rank died and all went back to a checkpoint
                if len(job.block.cells) == 1 and row["epoch"] != job.block.cells[0].settings.epochs:  # else all follow
                    job.keep(key, self.now)
                self.progress.epoch(job.block, key, row, earlier=message.earlier)
            case Finished(key, row, steps):
                job.records[key], job.steps[key] = {**row, **self.provenance, "worker": job.worker.name}, steps
            case Note(text):
                self.progress.note(text)
            case Done() | Refused():
                message.result()
                job.answered = True

    def _died(self, job: Job, status: str, message: str) -> None:
        """The child of a piece is gone: a cell alone gets the status, a group runs again one by one."""
        if len(job.piece) == 1:
            cell = job.piece[0]
            job.records[cell.key] = self._bare_record(job, cell, status, message)
        else:
            for cell in job.piece:
                job.epochs.pop(cell.key, None)
                job.records.pop(cell.key, None)
            job.pieces.extend((cell,) for cell in job.piece)
            self.progress.again(job.block, job.piece)
            self.progress.note(f"{message}: the {len(job.piece)} cells of block {job.block.id} run again one by one")
        self._next(job)

    def _lost(self, job: Job) -> None:
        """The worker or the server of processes is gone: the block runs again, unless it has cost too many of them."""
        assert job.child is not None
        job.child.kill()
        self.losses[job.block.id] += 1
        where, again = f"the process was {job.child.death()}", "runs again"
        if job.worker.name is not None:
            where, again = f"worker {job.worker.name} was lost", "runs again on another"
        if self.losses[job.block.id] < LOSSES:
            self.running.remove(job)
            job.release.close()
            self.queue.appendleft(job.block)
            self.progress.again(job.block, job.block.cells)
            self.progress.note(f"{where}: block {job.block.id} {again}")
            return
        for cell in job.block.cells:
            if cell.key not in job.records:
                message = f"{where} while it ran, as {LOSSES - 1} before it"
                job.records[cell.key] = self._bare_record(job, cell, "crashed", message)
        self._end(job)

    def _next(self, job: Job) -> None:
        """The next piece of a block, or its end; a child that has answered ends while the block is written."""
        child = job.child
        assert child is not None
        if not job.pieces:
            self._end(job)
        if job.answered:
            child.join()
        child.kill()
        shorten(job.log)
        if job.pieces:
            self._launch(job)

    def _end(self, job: Job) -> None:
        self.running.remove(job)
        self._commit(job)
        self.failed += sum(row["status"] not in FINISHED for row in job.records.values())
        self.progress.finished(job.block, job.records)

    def _commit(self, job: Job, *, over_finished: bool = True) -> None:
        for rows in job.epochs.values():
            for row, outlier in zip(rows, outliers([row["train_seconds"] for row in rows]), strict=True):
                row["outlier"] = outlier
        with interruption.uninterrupted():
            records = list(job.records.values())
            job.store.write_block(records, job.epochs, job.steps, over_finished=over_finished)
            job.release.close()

    def _bare_record(self, job: Job, cell: Cell, status: str, message: str) -> CellRow:
        """The row of a cell whose process could not write it."""
        now = datetime.now(UTC)
        return {
            **job.request.known(cell),
            "status": status,
            "message": message,
            **self.provenance,
            "worker": job.worker.name,
            "started": now,
            "finished": now,
        }

    def _abandon(self) -> None:
        """End all children; cells that were running are kept as interrupted, with the epochs they have."""
        for job in self.running:
            if job.child is not None:
                job.child.kill()
                shorten(job.log)
        for job in self.running:
            for cell in job.block.cells:
                if cell.key not in job.records:
                    job.records[cell.key] = self._bare_record(job, cell, "interrupted", "the run was stopped")
            with contextlib.suppress(BnpbenchError, OSError):  # what ended the run may be a full disk
                self._commit(job, over_finished=False)
            job.release.close()
        self.running.clear()
