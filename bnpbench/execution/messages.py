"""What goes to a child process and what comes back: plain values, picklable, the same on every executor.

A process is given one ``Request``. It sends any number of a ``Message``, then ``Done`` with the answer, or ``Refused``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from bnpbench.measure.step_costs import Costs
from bnpbench.suite import Block, Cell

Answer = TypeVar("Answer")


class Request(Generic[Answer]):
    """What a child process is asked for; ``Answer`` is the type of what ``Done`` holds."""


@dataclass(frozen=True)
class Pickled(Request[Any]):
    """A request that is pickled already, because it holds classes of plugins that this process has not loaded."""

    content: bytes


@dataclass(frozen=True)
class Describe(Request[dict[str, Any]]):
    """Ask for the environment of the machine, as ``measure.environment.describe`` gives it.

    Attributes:
        gpu: number of the CUDA device to describe.
    """

    gpu: int = 0


@dataclass(frozen=True)
class Preflight(Request[dict[str, Costs]]):
    """Check the cells of a suite before anything runs: data, networks, methods. The answer holds costs by a cell's key.

    Attributes:
        cells: to look at.
        data_dir: folder of the data sets.
        offline: download nothing.
        fetch: whether the data have to be there; download those that are missing.
    """

    cells: tuple[Cell, ...]
    data_dir: Path | None
    offline: bool
    fetch: bool = True


@dataclass(frozen=True)
class Smoke(Request[None]):
    """Take two eager steps of each cell. A ``Tried`` is sent for each, in their order."""

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
    """

    step: Time
    phases: dict[str, Time]
    operators: dict[str, tuple[Time, float]]
    kernels: float | None


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

    cell: Cell
    steps: int
    data_dir: Path | None
    gpu: int
    trace: Path


@dataclass(frozen=True)
class RunBlock(Request[None]):
    """Measure the cells of a block, or some of them alone after a crash. An ``Epoch`` is sent for each epoch and a
    ``Finished`` for each cell.

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
    """

    block: Block
    cells: tuple[Cell, ...]
    costs: dict[str, Costs]
    data_dir: Path | None
    checkpoints: Path | None
    fresh: bool
    cores: tuple[int, ...] | None
    gpu: int
    log: str


@dataclass(frozen=True)
class Epoch:
    """A measured epoch: a row of the ``epochs`` table."""

    key: str
    row: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """A cell is done, whatever its status: a row of the ``cells`` table, and its rows of ``steps``."""

    key: str
    row: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Note:
    """What the user should know while the run goes on."""

    text: str


Message = Epoch | Finished | Note | Tried

FAILED = ("oom", "error")  # how a cell may end in its own process without being finished


@dataclass(frozen=True)
class Done:
    """The request is answered."""

    answer: Any = None


@dataclass(frozen=True)
class Refused:
    """The request ended in an error that the user can mend."""

    error: Exception
