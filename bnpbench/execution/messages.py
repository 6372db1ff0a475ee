"""What goes to a child process and what comes back: plain values, picklable, the same on every executor.

A child is given one ``Request``. It sends any number of a ``Message``, then ``Done`` with the answer, or ``Refused``.
It may be killed or stopped in the middle of a message: the pipe's reader never waits for the rest.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, cast

from bnpbench.measure.step_costs import Costs
from bnpbench.records.documents import Environment
from bnpbench.records.rows import CellRow, EpochRow, StepRow
from bnpbench.suite import Block, Cell, Probe

Answer = TypeVar("Answer")


class Request(Generic[Answer]):
    """What a child is asked for; ``Answer`` is the type of what ``Done`` holds.

    Attributes:
        answered_by: MODULE:FUNCTION, which gets the request and what passes a ``Message`` on. By name, because it is
            for the child alone: nobody else imports torch.
        costs_its_cells: whether an error that nobody foresaw is told by how the child ends, and costs the cells.
    """

    answered_by: ClassVar[str]
    costs_its_cells: ClassVar[bool] = False

    def answer(self, tell: Tell) -> Answer:
        """Do, in the child, what is asked for. ``tell`` passes messages on meanwhile."""
        module, _, function = self.answered_by.partition(":")
        answer: Answer = getattr(import_module(module), function)(self, tell)
        return answer


@dataclass(frozen=True)
class Pickled(Request[Any]):
    """A request that is pickled already, because it holds classes of plugins that this process has not loaded.

    The child unpickles the request itself.
    """

    content: bytes

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self.content,)


@dataclass(frozen=True)
class Describe(Request[Environment]):
    """Ask for the environment of the machine, as ``measure.environment.describe`` gives it.

    Attributes:
        gpu: number of the CUDA device to describe.
    """

    gpu: int = 0

    def answer(self, tell: Tell) -> Environment:
        from bnpbench.measure.environment import describe

        return describe(self.gpu)


@dataclass(frozen=True)
class Preflight(Request[dict[str, Costs]]):
    """Check the cells of a suite before anything runs: data, networks, methods. The answer holds costs by a cell's key.
    A ``Phase`` is sent for each data set that is fetched, and for each setting that is looked at.

    Attributes:
        cells: to look at.
        data_dir: folder of the data sets.
        offline: download nothing.
        fetch: whether the data have to be there; download those that are missing.
        whole: all cells of the suite, of whose networks each pattern of ``layers`` has to fit one.
        probe: what every cell is looked at with, if anything.
    """

    answered_by = "bnpbench.execution.preflight:preflight"

    cells: tuple[Cell, ...]
    data_dir: Path | None
    offline: bool
    fetch: bool = True
    whole: tuple[Cell, ...] = ()
    probe: Probe | None = None


@dataclass(frozen=True)
class Smoke(Request[None]):
    """Take two eager steps of each cell, and its metrics of two batches. A ``Tried`` is sent for each, in order."""

    answered_by = "bnpbench.execution.preflight:smoke"

    cells: tuple[Cell, ...]
    data_dir: Path | None


@dataclass(frozen=True)
class Tried:
    """What became of a cell of ``Smoke``.

    Attributes:
        key: of the cell.
        status: ``finite``; ``not finite``; ``not applicable``; ``not tried``; ``error``.
        message: what there is to say of it.
        losses: of the first step, of the second, and of a forward pass after it.
        seconds: that it took.
        peak_memory_bytes: of its process so far.
    """

    key: str
    status: str
    message: str = ""
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True)
class Time:
    """Milliseconds a step: on the host, and of kernels on the device (None on the CPU)."""

    host: float
    device: float | None


@dataclass(frozen=True)
class Profiled:
    """Where the time of a step goes.

    Attributes:
        step: the whole of it.
        phases: by the name of ``training.step.PHASES``.
        operators: by name, the time of its own and the calls a step; the dearest first.
        kernels: launched a step; None on the CPU.
        untold: why nothing is told of a CUDA device.
        joined: whether the whole update is part of the method's change of the gradients, as one function.
    """

    step: Time
    phases: dict[str, Time]
    operators: dict[str, tuple[Time, float]]
    kernels: float | None
    untold: str | None = None
    joined: bool = False


@dataclass(frozen=True)
class Profile(Request[Profiled]):
    """Ask where the time of a cell's step goes.

    Attributes:
        cell: its step is run eagerly, whatever its engine: a compiled step has no phases.
        steps: how many are looked at, after as many that warm up.
        data_dir: folder of the data sets.
        gpu: number of the CUDA device.
        trace: file for the trace, which Perfetto and chrome://tracing open.
    """

    answered_by = "bnpbench.profiling.phases:profile"

    cell: Cell
    steps: int
    data_dir: Path | None
    gpu: int
    trace: Path


@dataclass(frozen=True)
class RunBlock(Request[None]):
    """Measure the cells of a block, or some of them alone after a crash. An ``Epoch`` is sent for each epoch, a
    ``Finished`` for each cell, and a ``Phase`` for what takes its time besides.

    Attributes:
        block: as the suite has it.
        cells: the members to run now; they are interleaved only if they are the whole block.
        costs: what preflight found, by the cell's key.
        data_dir: folder of the data sets.
        checkpoints: folder of checkpoints, or None for a block that cannot resume.
        fresh: start afresh, whatever checkpoint there is.
        cores: to which the process is bound, or None.
        gpu: number of the CUDA device.
        log: name of the log file as the cells table shows it.
        jobs: how many blocks its machine measures at a time.
    """

    answered_by = "bnpbench.execution.ranks:run"
    costs_its_cells = True

    block: Block
    cells: tuple[Cell, ...]
    costs: dict[str, Costs]
    data_dir: Path | None
    checkpoints: Path | None
    fresh: bool
    cores: tuple[int, ...] | None
    gpu: int
    log: str
    jobs: int = 1

    def known(self, cell: Cell) -> CellRow:
        """The columns of the ``cells`` table that are known before a cell of the block runs."""
        settings = cell.settings
        assert settings.threads != "auto"  # of a cell nothing is left at it
        return {
            "key": cell.key,
            "label": cell.label,
            "block": self.block.id,
            "role": cell.role,
            "settings": cell.canonical,
            "method": settings.method.kind,
            "network": settings.network.kind,
            "dataset": settings.dataset.kind,
            "batch_size": settings.batch_size,
            "engine": settings.engine,
            "device": settings.device,
            "devices": settings.devices,
            "seed": settings.seed,
            "threads": settings.threads,
            "precision": settings.precision,
            "log": self.log,
            "jobs": self.jobs,
            **cast(CellRow, asdict(self.costs[cell.key].columns)),
        }


@dataclass(frozen=True)
class Phase:
    """What goes on now. Never told during timed steps.

    Attributes:
        name: such as ``data``, ``warm-up`` or ``evaluation``.
        far: how far it is, such as ``3/20``; empty where that is not told.
        key: of the cell; None for what belongs to none alone.
    """

    name: str
    far: str = ""
    key: str | None = None

    @property
    def text(self) -> str:
        """For a person."""
        return f"{self.name} {self.far}" if self.far else self.name


@dataclass(frozen=True)
class Epoch:
    """A measured epoch.

    Attributes:
        key: of the cell.
        row: of the ``epochs`` table.
        earlier: whether an earlier run measured it, and the cell goes on from there.
    """

    key: str
    row: EpochRow
    earlier: bool = False


@dataclass(frozen=True)
class Finished:
    """A cell is done, whatever its status."""

    key: str
    row: CellRow
    steps: list[StepRow] = field(default_factory=list)


@dataclass(frozen=True)
class Note:
    """What the user should know while the run goes on."""

    text: str


Message = Phase | Epoch | Finished | Note | Tried
Tell = Callable[[Message], None]
"""Passes a message on."""

FAILED = ("oom", "error")  # how a cell may end in its own process without being finished


@dataclass(frozen=True)
class Done(Generic[Answer]):
    """The request is answered."""

    answer: Answer

    def result(self) -> Answer:
        return self.answer


@dataclass(frozen=True)
class Refused:
    """The request ended in an error that the user can mend."""

    error: Exception

    def result(self) -> NoReturn:
        """Raises the error."""
        raise self.error


_LENGTH = 8  # bytes in front of each message, which say how long it is
_CHUNK = 2**20


class Outbox:
    """Writes messages into a pipe; where nobody reads it any more, the process ends without a word."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def send(self, message: Any) -> None:
        """Write a message; waits while the pipe is full."""
        pickled = pickle.dumps(message)
        rest = memoryview(len(pickled).to_bytes(_LENGTH, "big") + pickled)
        try:
            while rest:
                rest = rest[os.write(self.pipe.fileno(), rest) :]
        except BrokenPipeError:  # the parent has gone, which is no fault of what is asked for: nothing may catch it
            os._exit(1)


class Inbox:
    """Reads messages from a pipe.

    Attributes:
        ended: whether nothing more can come: the pipe's other end is closed, and all is read.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.ended = pipe, False
        self._read = bytearray()
        os.set_blocking(pipe.fileno(), False)

    def fileno(self) -> int:
        return self.pipe.fileno()

    def close(self) -> None:
        self.pipe.close()

    def messages(self) -> Iterator[Any]:
        """Those that have arrived whole and were not read yet; does not wait."""
        while True:
            while (pickled := self._next()) is not None:
                yield pickle.loads(pickled)
            try:
                some = os.read(self.pipe.fileno(), _CHUNK)
            except BlockingIOError:
                return
            if not some:
                self.ended = True
                return
            self._read += some

    def _next(self) -> bytes | None:
        """The first of the messages, taken out of what was read."""
        end = _LENGTH + int.from_bytes(self._read[:_LENGTH], "big")
        if len(self._read) < max(end, _LENGTH):
            return None
        pickled = bytes(self._read[_LENGTH:end])
        del self._read[:end]
        return pickled
