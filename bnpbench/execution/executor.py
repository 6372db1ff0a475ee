"""Where blocks run: the interface that a sweep sees, and this machine behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from bnpbench.execution.children import Child, LocalChild, ask, start_forkserver
from bnpbench.execution.messages import Describe, Preflight, RunBlock, Tell
from bnpbench.execution.options import Options, device_index, resolve_device
from bnpbench.measure.driver import driver_count
from bnpbench.measure.known import known
from bnpbench.measure.step_costs import Costs
from bnpbench.records.documents import Environment
from bnpbench.suite import Block, Suite

PRECOMPILE = "bnpbench.execution.precompile"


@dataclass(frozen=True, eq=False)
class Worker:
    """What runs one block at a time.

    Attributes:
        name: for the ``worker`` column; None on the machine of the run itself.
        environment: of its machine, see ``measure.environment.describe``.
        gpu: number of its CUDA device; None: it takes cells of the CPU only.
        cores: those that its children are bound to; None: the whole machine, unbound.
        jobs: how many workers its machine has.
    """

    name: str | None
    environment: Environment
    gpu: int | None
    cores: tuple[int, ...] | None = None
    jobs: int = 1

    def takes(self, block: Block) -> bool:
        return self.gpu is not None or all(cell.settings.device == "cpu" for cell in block.cells)


class Executor(Protocol):
    """Gives a sweep its workers, and runs requests on them.

    Attributes:
        device: what ``auto`` stands for.
        threads: what ``auto`` stands for, for a worker has as many cores of its own.
        environments: of the workers that are there at the start.
    """

    device: Literal["cpu", "cuda"]
    threads: int

    @property
    def environments(self) -> Sequence[Environment]: ...

    def workers(self) -> Sequence[Worker]:
        """Those that are there now, also the busy ones."""

    def begin(self) -> None:
        """There is something to run."""

    def preflight(self, request: Preflight, told: Tell) -> dict[str, Costs]:
        """Check the cells wherever they may run; see ``Preflight``. Raises BnpbenchError.

        Args:
            request: the cells.
            told: gets what is told meanwhile.
        """

    def start(self, worker: Worker, request: RunBlock, log: Path) -> Child:
        """A child for a request on a worker that is free.

        Args:
            worker: of ``workers``.
            request: its device and cores are the worker's.
            log: file that gets what the child prints.
        """

    def wait(self, children: Sequence[Any], timeout: float) -> None:
        """Wait for a message or an end of one of the children, but no longer than ``timeout`` seconds."""

    def close(self) -> None:
        """End what was started; nothing is left behind."""


class SomethingToDo(Exception):
    """What is known of this machine does not do: a child is needed."""


class _Machine:
    """This machine: ``options.jobs`` workers.

    Args:
        options: of the run.
        describe: gives the environment with the CUDA device of a number.
    """

    def __init__(self, options: Options, describe: Callable[[int], Environment]) -> None:
        first = device_index(options.device) or 0
        environment = describe(first)
        gpus = environment.hardware.gpus
        self.device = resolve_device(options.device, gpus, environment.details.cuda_unusable)
        self.threads = max(len(usable_cores(environment)) // options.jobs, 1)
        numbers = gpu_numbers(options.device, gpus, options.jobs)
        found = {number: environment if number == first else describe(number) for number in dict.fromkeys(numbers)}
        self.environments = list(found.values())
        self._workers = [
            Worker(None, found[number], number, share(environment, place, options.jobs), options.jobs)
            for place, number in enumerate(numbers)
        ]

    def workers(self) -> Sequence[Worker]:
        return self._workers


class Known(_Machine):
    """This machine without a child: enough for a run that finds everything finished.

    Raises:
        SomethingToDo: here and wherever a child is needed.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options, self._describe)

    @staticmethod
    def _describe(gpu: int) -> Environment:
        if (environment := known(gpu)) is None:
            raise SomethingToDo
        return environment

    def begin(self) -> None:
        raise SomethingToDo

    def preflight(self, request: Preflight, told: Tell) -> NoReturn:
        raise SomethingToDo

    def start(self, worker: Worker, request: RunBlock, log: Path) -> NoReturn:
        raise SomethingToDo

    def wait(self, children: Sequence[Any], timeout: float) -> NoReturn:
        raise SomethingToDo

    def close(self) -> None:
        """Nothing was started."""


class Local(_Machine):
    """This machine, with one forkserver for all workers.

    Args:
        options: of the run.
        suite: whose blocks are run.
    """

    def __init__(self, options: Options, suite: Suite) -> None:
        self.plugins = suite.plugins
        start_forkserver(modules_for(suite))
        super().__init__(options, lambda gpu: ask(Describe(gpu)))

    def begin(self) -> None:
        """It has."""

    def preflight(self, request: Preflight, told: Tell) -> dict[str, Costs]:
        return ask(request, self.plugins, told=told)

    def start(self, worker: Worker, request: RunBlock, log: Path) -> LocalChild:
        return LocalChild(request, self.plugins, log)

    def wait(self, children: Sequence[LocalChild], timeout: float) -> None:
        if children:
            connection.wait([one for child in children for one in child.wait_on()], timeout)
        else:
            time.sleep(timeout)

    def close(self) -> None:
        """The forkserver stays, for the suite that may come next; it ends with this process."""


def gpu_numbers(asked: str, gpus: int, places: int) -> list[int]:
    """The CUDA device of each of several workers: the one that ``--device`` names, else each in turn has another."""
    named = device_index(asked)
    in_turn = gpus > 0 and named is not None and ":" not in asked
    return [place % gpus if in_turn else named or 0 for place in range(places)]


def usable_cores(environment: Environment) -> list[int]:
    """Numbers of the cores that a process of this environment may use, one thread each."""
    count = environment.hardware.cores
    return list(environment.details.affinity or range(count))[:count]


def share(environment: Environment, place: int, places: int) -> tuple[int, ...] | None:
    """The cores of one of several workers of a machine; an only one has the whole machine, unbound."""
    if places == 1:
        return None
    cores = usable_cores(environment)
    each = max(len(cores) // places, 1)
    return tuple(cores[(place * each + i) % len(cores)] for i in range(each))


def modules_for(suite: Suite) -> list[str]:
    """What a forkserver had better import before a child reads the suite's data sets, or compiles a step of it."""
    modules = {module for dataset in suite.datasets() for module in dataset.imports}
    engines = suite.engines() - {"eager"}
    if engines - {"auto"} or (engines and driver_count() != 0):  # "auto" compiles on a GPU alone
        modules.add(PRECOMPILE)
    return sorted(modules)
