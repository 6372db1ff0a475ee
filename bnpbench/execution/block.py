"""Measures the cells of a block in this process, epoch by epoch in turn, so that drift hits all alike."""

from __future__ import annotations

import gc
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from bnpbench.datasets import storage
from bnpbench.execution.child import configure, failure
from bnpbench.execution.messages import FAILED, Epoch, Finished, Note, Phase, RunBlock, Tell
from bnpbench.measure import machine
from bnpbench.measure.conditioning import Probe
from bnpbench.measure.kernels import NO_CUPTI
from bnpbench.measure.machine import DeviceMemory, average_cores
from bnpbench.measure.step_costs import Costs
from bnpbench.records.rows import CellRow, EpochRow, StepRow
from bnpbench.suite import Cell
from bnpbench.training import state
from bnpbench.training.engines import make_workspaces
from bnpbench.training.examples import Examples, Streamed, data_key, examples_of
from bnpbench.training.parallel import Group
from bnpbench.training.trainer import Trainer, diverged

CHECKPOINT_SECONDS = 1.0  # training that a crash may cost; a checkpoint takes some milliseconds
TOLD_SECONDS = 1.0  # of an epoch that is told when it begins, and when it is evaluated
PREPARATIONS = {"compiled": "compile", "graphed": "capture"}
"""What an engine does before the first step that takes its time."""


@dataclass
class Member:
    """A cell of the block and how far it is."""

    cell: Cell
    costs: Costs
    memory: DeviceMemory
    trainer: Trainer | None = None
    status: str | None = None
    message: str | None = None
    stopped_by: str | None = None
    rows: list[EpochRow] = field(default_factory=list)
    probed: list[StepRow] = field(default_factory=list)
    train_examples: int | None = None
    last_batch: int | None = None
    test_examples: int | None = None
    setup_seconds: float = 0.0
    warmup_seconds: float = 0.0
    compile_seconds: float = 0.0
    step: CellRow = field(default_factory=CellRow)  # what is told of the one that really runs
    wall_seconds: float = 0.0
    clock_mhz_before: float | None = None  # at the end of the steps of its first epoch, and of its last
    clock_mhz_after: float | None = None
    kernels: int | None = None
    optimizer_bytes: int | None = None  # of its state, once all steps are done
    throttled: bool | None = None  # at the end of those of any epoch
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    saved: float = 0.0  # when its checkpoint was written, or the block began
    random: Any = None  # the process-wide random states, while another member runs

    def note(self, text: str) -> None:
        self.message = "; ".join(filter(None, (self.message, text)))

    def end(self, status: str, message: str | None = None) -> None:
        self.status, self.message = status, message or self.message
        if self.trainer is not None:
            self.probed, self.trainer = [{"key": self.cell.key, **row} for row in self.trainer.probed], None


def run_block(request: RunBlock, emit: Tell, group: Group | None = None) -> None:
    """Set this process up for the request's cells and measure them; see ``BlockRun``."""
    configure(request.cells[0].settings, request.gpu + (group.rank if group else 0), request.cores)
    BlockRun(request, emit, group).run()


class Gauges(Protocol):
    """What is read of the machine beside the time; see ``measure.machine``."""

    def clock_mhz(self, device: torch.device) -> float | None: ...
    def throttled(self, device: torch.device) -> bool | None: ...
    def others(self, device: torch.device) -> list[str]: ...
    def peak_memory_bytes(self) -> int: ...
    def seconds_of_others(self) -> float | None: ...


class BlockRun:
    """One run of a block's cells in this process.

    Args:
        request: what to measure.
        emit: is given an ``Epoch`` for each epoch, and a ``Finished`` for each cell in the end.
        group: of ranks that do the same in step with this one; by default this process is alone.
        make_trainer: of a cell, its data and their device.
        now: the time in seconds.
        gauges: of the machine.
        checkpoint_seconds: of training that a crash may cost.
    """

    def __init__(
        self,
        request: RunBlock,
        emit: Tell,
        group: Group | None = None,
        *,
        make_trainer: Callable[..., Trainer] = Trainer,
        now: Callable[[], float] = time.perf_counter,
        gauges: Gauges = machine,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self.request, self.emit = request, emit
        self.make_trainer, self.now, self.gauges = make_trainer, now, gauges
        self.checkpoint_seconds = checkpoint_seconds
        self.device = torch.device(request.cells[0].settings.device)
        memory = [DeviceMemory(self.device) for _ in request.cells]
        self.members = [
            Member(cell, request.costs[cell.key], held, saved=now())
            for cell, held in zip(request.cells, memory, strict=True)
        ]
        self.group = group or Group(self.device)
        self.interleaved = request.block.interleaved and len(request.cells) == len(request.block.cells)
        asked = request.block.probe
        self.probe = None if asked is None else Probe(**asked.model_dump())
        self.turn, self.began = 0, self.now()
        self.other_cores: float | None = None
        self.examples: dict[Any, Examples] = {}

    def run(self) -> None:
        for member in self.members:
            self.guarded(member, self.set_up)
            self.guarded(member, self.prepare)
            self.guarded(member, self.warm_up)
            self.guarded(member, self.resume)
        others, begin, epoch = self.gauges.seconds_of_others(), self.now(), 0
        while any(m.trainer for m in self.members):
            epoch += 1
            for place in self.order(epoch):
                self.guarded(self.members[place], self.one_epoch)
            settle = partial(self.settle, stop=self.why_stop())
            for member in self.members:
                self.guarded(member, settle)
        self.other_cores = average_cores(others, self.gauges.seconds_of_others(), self.now() - begin)
        for member in self.members:
            self.emit(Finished(member.cell.key, self.record(member), member.probed))

    def order(self, epoch: int) -> tuple[int, ...]:
        return self.request.block.turns(epoch) if self.interleaved else tuple(range(len(self.members)))

    def guarded(self, member: Member, work: Callable[[Member], None]) -> None:
        """Do a member's work with its own random states and on its own account; a failure ends this cell only."""
        if member.status is not None:
            return
        if member.random is not None:
            state.set_random_state(member.random)
        begin = self.now()
        try:
            work(member)
        except Exception as error:
            traceback.print_exc()
            member.end(*failure(error, member.cell))
        if member.status in FAILED:  # its tensors hang on cycles, and the others may need the room
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # with workspaces of cuBLAS, that the next cell should not be charged with
                make_workspaces(self.device)
        member.wall_seconds += self.now() - begin
        member.random = state.random_state()

    def set_up(self, member: Member) -> None:
        if member.costs.not_applicable:
            member.end("not-applicable", member.costs.not_applicable)
            return
        if self.device.type == "cuda" and (beside := self.gauges.others(self.device)):
            member.note(f"others compute on this GPU: {', '.join(beside)}")
        if member.costs.uncounted:
            member.note(f"costs are not known: {member.costs.uncounted}")
        begin = self.now()
        examples = self.examples_of(member.cell)
        if isinstance(examples, Streamed):
            member.note(f"input rate: {examples.rate:.0f} images a second")
        with member.memory.turn():
            member.trainer = self.make_trainer(member.cell, examples, self.device, self.probe, group=self.group)
        member.train_examples = member.trainer.steps * member.cell.settings.batch_size
        member.last_batch = member.trainer.last_batch
        member.test_examples = examples.test_examples
        member.setup_seconds = self.now() - begin

    def examples_of(self, cell: Cell) -> Examples:
        """The cell's data on the device, loaded once for all members that share it."""
        key = data_key(cell.settings)
        if key not in self.examples:
            self.emit(Phase("data", key=cell.key))
            self.examples[key] = examples_of(cell.settings, storage.root(self.request.data_dir), self.device)
        return self.examples[key]

    def prepare(self, member: Member) -> None:
        assert member.trainer is not None
        begin = self.now()
        if member.cell.settings.engine in PREPARATIONS:
            self.emit(Phase(PREPARATIONS[member.cell.settings.engine], key=member.cell.key))
        with member.memory.turn():
            member.trainer.prepare()
        member.step = member.trainer.columns()
        if (reason := member.trainer.unfused) is not None:
            member.note(f"BNP in its plain form instead of the fused one: {reason}")
        member.compile_seconds = self.now() - begin

    def warm_up(self, member: Member) -> None:
        assert member.trainer is not None
        begin = self.now()
        if self.request.block.measure.warmup_epochs:
            self.emit(Phase("warm-up", key=member.cell.key))
        with member.memory.turn():
            member.trainer.warm_up(self.request.block.measure.warmup_epochs)
        member.warmup_seconds = self.now() - begin

    def resume(self, member: Member) -> None:
        """Go on from the cell's checkpoint, if there is one; from the start, if that is not what was written."""
        assert member.trainer is not None
        if self.request.checkpoints is None or self.request.fresh:
            return
        path = self.checkpoint(member)
        random = state.random_state()
        try:
            saved = state.load(path, member.trainer.state.most_bytes)
            if saved is None or saved.get("block") != self.request.block.id:
                return
            rows, wall_seconds = checked_rows(saved["rows"], member.cell.key), float(saved["wall_seconds"])
            probed = checked_probed(saved["probed"], member.cell.key)
            state.set_random_state(saved["random"])
            member.trainer.state.resume_from(saved["state"])
        except Exception as error:  # whatever stands in a file that somebody else made
            reason = str(error) if isinstance(error, state.DamagedState) else f"{type(error).__name__}: {error}"
            told = f"its checkpoint {path.name} cannot be used ({' '.join(reason.split())[:200]}): started afresh"
            state.set_random_state(random)
            member.message = "; ".join(filter(None, (member.message, told)))
            self.emit(Note(f"{member.cell.label}, batch size {member.cell.settings.batch_size}: {told}"))
            return
        member.trainer.epochs_done, member.trainer.probed = len(rows), probed
        member.rows, member.wall_seconds = rows, member.wall_seconds + wall_seconds
        for row in rows:
            self.emit(Epoch(member.cell.key, row, earlier=True))

    def one_epoch(self, member: Member) -> None:
        trainer = member.trainer
        assert trainer is not None
        trainer.look = partial(self.look, member)
        trainer.trained = self.says(member, "evaluation after epoch")
        self.says(member, "epoch")()
        with member.memory.turn():
            row = trainer.epoch()
            member.memory.stepped(trainer.peak_bytes)
        self.turn += 1
        row |= {"key": member.cell.key, "block": self.request.block.id, "turn": self.turn if self.interleaved else None}
        member.rows.append(row)
        self.emit(Epoch(member.cell.key, row))
        if diverged(row):
            member.end("diverged", f"the loss is not finite in epoch {row['epoch']}")

    def says(self, member: Member, phase: str) -> Callable[[], None]:
        """Tells a phase of the member's next epoch, unless its epochs are so short that each is told when it is over.

        Whoever is told takes some of the machine's time; it is never told while steps are timed.
        """
        if member.rows and member.rows[-1]["train_seconds"] < TOLD_SECONDS:
            return lambda: None
        of = "" if self.request.block.measure.interval is not None else f"/{member.cell.settings.epochs}"
        return partial(self.emit, Phase(phase, f"{len(member.rows) + 1}{of}", member.cell.key))

    def look(self, member: Member) -> None:
        """At the machine while it works, at the end of an epoch's steps: idle, it has another clock."""
        member.clock_mhz_after = self.gauges.clock_mhz(self.device)
        if member.clock_mhz_before is None:
            member.clock_mhz_before = member.clock_mhz_after
        if (throttled := self.gauges.throttled(self.device)) is not None:
            member.throttled = throttled or bool(member.throttled)

    def why_stop(self) -> str | None:
        """What ends the block, where its length follows from how well the ratios of its times are known."""
        measure, running = self.request.block.measure, [m for m in self.members if m.trainer is not None]
        if measure.interval is None or not all(m.trainer and m.trainer.finished for m in running):
            return None
        if all(half <= measure.interval for half in self.half_widths(running)):
            return "interval"
        last = measure.last_epoch(self.request.cells[0].settings.epochs)  # the same for all that take turns
        if last is not None and any(len(m.rows) >= last for m in running):
            return "max_epochs"
        if measure.max_seconds is not None and self.now() - self.began >= measure.max_seconds:
            return "max_seconds"
        return None

    def half_widths(self, members: list[Member]) -> list[float]:
        """Half the 95 % interval of each ratio of times that the report shows, as a share of the ratio."""
        from bnpbench.statistics.times import LEAST_RANKED, median_interval  # brings scipy, which no other block needs

        bases = [m for m in members if self.is_base(m.cell)] or members[:1]
        found = []
        for base in bases:
            for member in members:
                if member is not base:
                    pairs = zip(member.rows, base.rows, strict=False)
                    ratio = median_interval([a["train_seconds"] / b["train_seconds"] for a, b in pairs], "ratios")
                    known = ratio.width is not None and ratio.n >= LEAST_RANKED  # few may be close by chance
                    found.append(ratio.width / ratio.value if known and ratio.width is not None else math.inf)
        return found

    def is_base(self, cell: Cell) -> bool:
        """Whether the report shows ratios to a cell's method: to what the suite names, to vanilla, to bn."""
        named, method = self.request.block.baseline, cell.settings.method
        return method.baseline is not None or (named is not None and named in (cell.label, method.kind))

    def settle(self, member: Member, stop: str | None) -> None:
        """After an epoch of every member: end this one, or keep its state."""
        trainer = member.trainer
        assert trainer is not None
        if stop is not None or (trainer.finished and self.request.block.measure.interval is None):
            member.stopped_by = stop or "epochs"
            member.optimizer_bytes = trainer.state.optimizer_bytes
            if self.device.type == "cuda":
                member.kernels = trainer.kernels()
                if member.kernels is None:
                    member.note(f"kernels are not counted: {NO_CUPTI}")
            member.end("ok")
        elif self.request.checkpoints and self.now() - member.saved >= self.checkpoint_seconds:
            if self.group.rank == 0:
                self.save(member, trainer)
            member.saved = self.now()

    def checkpoint(self, member: Member) -> Path:
        assert self.request.checkpoints is not None
        return self.request.checkpoints / f"{member.cell.key}.pt"

    def save(self, member: Member, trainer: Trainer) -> None:
        state.save(
            {
                "block": self.request.block.id,  # of a cell alone: it tells the cell, and what is probed
                "state": trainer.state.snapshot(),
                "random": state.random_state(),
                "rows": member.rows,
                "probed": trainer.probed,
                "wall_seconds": member.wall_seconds,
            },
            self.checkpoint(member),
            self.checkpoint(member).with_name(f".{self.request.block.id}.tmp"),  # as ``Store.checkpoint_temporary``
        )

    def record(self, member: Member) -> CellRow:
        """The cell's row."""
        cell = member.cell
        assert member.status is not None
        peak: int | None = None
        if self.device.type == "cuda":
            peak = member.memory.peak
        elif len(self.members) == 1:
            peak = self.gauges.peak_memory_bytes()
        if peak is not None and member.status not in FAILED:  # else the other ranks may be waiting elsewhere
            peak = int(self.group.largest(peak))
        return {
            **self.request.known(cell),
            "status": member.status,
            "message": member.message,
            "kernels_per_step": member.kernels,
            "optimizer_state_bytes": member.optimizer_bytes,
            "peak_memory_bytes": peak,
            "energy_joules": total([row["energy_joules"] for row in member.rows]),
            "setup_seconds": member.setup_seconds,
            "warmup_seconds": member.warmup_seconds,
            "compile_seconds": member.compile_seconds,
            "wall_seconds": member.wall_seconds,
            "stopped_by": member.stopped_by,
            **member.step,
            "train_examples": member.train_examples,
            "last_batch": member.last_batch,
            "test_examples": member.test_examples,
            "clock_mhz_before": member.clock_mhz_before,
            "clock_mhz_after": member.clock_mhz_after,
            "throttled": member.throttled,
            "other_cores": self.other_cores if member.rows else None,
            "started": member.started,
            "finished": datetime.now(UTC),
        }


def checked_rows(rows: Iterable[Mapping[str, object]], key: str) -> list[EpochRow]:
    """The epochs of a checkpoint.

    Raises:
        DamagedState: they are not those of this cell, from the first on.
        ValueError, TypeError, OverflowError: they are no rows of ``epochs``.
    """
    from bnpbench.results.part import table_of  # brings pandas, which no other block needs
    from bnpbench.results.schema import EPOCHS

    found = [dict(row) for row in rows]
    for epoch, row in enumerate(found, 1):
        told = all(isinstance(row.get(name), float) for name in ("train_loss", "train_seconds", "test_accuracy"))
        if (row.get("key"), row.get("epoch")) != (key, epoch) or not told:
            raise state.DamagedState(f"it does not tell epoch {epoch} of this cell")
    table_of(found, EPOCHS)
    return cast(list[EpochRow], found)


def checked_probed(rows: Iterable[Mapping[str, object]], key: str) -> list[StepRow]:
    """What a checkpoint tells of steps. Raises ValueError, TypeError or OverflowError where these are no such rows."""
    from bnpbench.results.part import table_of
    from bnpbench.results.schema import STEPS

    found = [dict(row) for row in rows]
    table_of([{"key": key, **row} for row in found], STEPS)
    return cast(list[StepRow], found)


def total(values: Sequence[float | None]) -> float | None:
    """Their sum; None if any is, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
