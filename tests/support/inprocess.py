"""An executor that answers everything in this process, at once: what is put into it decides what a run measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from bnpbench.execution.block import BlockRun
from bnpbench.execution.executor import Worker
from bnpbench.execution.messages import Done, Preflight, RunBlock, Tell
from bnpbench.execution.options import Options, check
from bnpbench.execution.preflight import preflight
from bnpbench.execution.progress import Progress
from bnpbench.execution.run import execute
from bnpbench.measure.step_costs import Costs
from bnpbench.records.documents import Environment
from bnpbench.results import Results, read_results
from bnpbench.suite import Suite
from tests.support.made_results import ENVIRONMENT


def run_here(suite: Suite, out: Path, progress: Progress | None = None, **options: Any) -> Results:
    """As ``run_suite``, in this process."""
    asked = Options(out=out, device="cpu", **options)
    execute(check(suite, asked), asked, progress or Progress(), InProcess(ENVIRONMENT))
    return read_results(out)


def measured(request: RunBlock, emit: Tell) -> None:
    """As ``run_block`` measures, without setting up this process for it."""
    BlockRun(request, emit).run()


class Answered:
    """A child that is over as soon as it has begun."""

    lost = False

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    def alive(self) -> bool:
        return False

    def messages(self) -> Iterator[Any]:
        yield from self._messages
        self._messages = []

    def join(self) -> None: ...

    def kill(self) -> None: ...

    def death(self) -> str:
        return "never alive"


class InProcess:
    """One worker, this process.

    Args:
        environment: as ``measure.environment.describe`` gives it.
        run: answers a request; what it emits and ``Done`` are the child's messages.
        costs: changes what preflight found.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    threads = 1

    def __init__(
        self,
        environment: Environment,
        run: Callable[[RunBlock, Tell], None] = measured,
        costs: Callable[[Costs], Costs] = lambda costs: costs,
    ) -> None:
        self.environments = [environment]
        self._run, self._costs = run, costs
        self._workers = [Worker(None, environment, gpu=None)]

    def workers(self) -> Sequence[Worker]:
        return self._workers

    def begin(self) -> None: ...

    def preflight(self, request: Preflight, told: Tell) -> dict[str, Costs]:
        return {key: self._costs(costs) for key, costs in preflight(request, told).items()}

    def start(self, worker: Worker, request: RunBlock, log: Path) -> Answered:
        messages: list[Any] = []
        self._run(request, messages.append)
        return Answered([*messages, Done(None)])

    def wait(self, children: Sequence[Answered], timeout: float) -> None: ...

    def close(self) -> None: ...
