"""A whole suite under a fake clock and a fake step: every number of its report is known beforehand."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bnpbench import load_suite, run_suite
from bnpbench.execution import child
from bnpbench.execution.messages import Done, Probe
from bnpbench.measure.clock import Reading
from bnpbench.measure.step_costs import Costs
from bnpbench.report import render
from tests.support.made_results import ENVIRONMENT

SUITE = """
name = "fake"
[train]
dataset = { kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }
network = { kind = "fc", hidden = [9, 8] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 8
threads = 1
[sweep]
batch_size = [1, 10]
method = ["vanilla", "bn", "bnp"]
seed = [1, 2]
[measure]
interleave = ["method"]
[report]
targets = [0.5, 0.9]
[[reference]]
cell = { method = "bn", batch_size = 10 }
metric = "train_seconds"
value = 1.5
source = "nobody"
[[claim]]
says = "BNP takes 1.25 times as long as vanilla"
left = { method = "bnp" }
right = { method = "vanilla" }
where = { batch_size = [1, 10] }
metric = "train_seconds"
ratio = { at_least = 1.25, at_most = 1.25 }
[[claim]]
says = "BN is as fast as vanilla"
left = { method = "bn" }
right = { method = "vanilla" }
where = { batch_size = 10 }
metric = "train_seconds"
ratio = { at_most = 1.0 }
"""
SECONDS = {"vanilla": 1.0, "bn": 1.5, "bnp": 1.25}


class FakeStep:
    """Learns a tenth of the labels in each epoch; its loss is one over the epoch."""

    def __init__(self, model: Any, labels: Any, optimizer: Any, **_: Any) -> None:
        self.labels, self.epochs = labels, 0
        self.loss_sum = labels.new_zeros(()).double()
        self.predicted = labels.clone()

    def begin_epoch(self, noise: Any) -> None:
        self.epochs += 1
        self.loss_sum.zero_()

    def __call__(self, index: Any) -> None:
        self.loss_sum.add_(1 / self.epochs)


class FakeClock:
    """An epoch takes the method's seconds; at batch size 1 ten times that, and its third twice as long again."""

    def __init__(self, seconds: float, steps: int, epoch: int) -> None:
        self.steps = steps
        self.seconds = seconds * (10 if steps > 100 else 1) * (2 if epoch == 3 else 1)

    def start(self) -> None: ...

    def lap(self) -> None: ...

    def stop(self) -> Reading:
        return Reading(self.seconds, (self.seconds / self.steps,) * self.steps)


class InProcess:
    """Answers a request at once, in this process."""

    lost = False

    def __init__(self, request: Any, plugins: Any = (), log: Any = None) -> None:
        self.answers: list[Any] = []
        sender = SimpleNamespace(send=self.answers.append)
        self.answers.append(Done(child._answer(sender, request)))  # type: ignore[arg-type]
        self.channel, far_end = multiprocessing.Pipe(duplex=False)
        far_end.close()  # ready at once
        self.process = SimpleNamespace(sentinel=os.open(os.devnull, os.O_RDONLY))

    def alive(self) -> bool:
        return False

    def messages(self) -> Iterator[Any]:
        yield from self.answers
        self.answers = []

    def join(self) -> None: ...

    def kill(self) -> None:
        self.channel.close()
        os.close(self.process.sentinel)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    from bnpbench.execution import block, executor
    from bnpbench.training import trainer

    def ask(request: Any, plugins: Any = ()) -> Any:
        if isinstance(request, Probe):
            return ENVIRONMENT
        found: dict[str, Costs] = child._answer(None, request)  # type: ignore[arg-type]
        decided_by_torch = {"flops_method_executed": 4321, "operators_per_step": 50}
        return {key: replace(c, columns=replace(c.columns, **decided_by_torch)) for key, c in found.items()}

    def fake_trainer(cell: Any, *arguments: Any, **options: Any) -> Any:
        made: Any = trainer.Trainer(cell, *arguments, **options)
        seconds = SECONDS[cell.settings.method.kind]
        made.make_clock = lambda device, steps: FakeClock(seconds, steps, made.step.epochs + 1)
        return made

    def evaluate(model: Any, data: Any, device: Any) -> tuple[float, float]:
        evaluations[model] = evaluations.get(model, 0) + 1
        return 2 / evaluations[model], evaluations[model] / 10

    ticks = iter(range(10**9))
    evaluations: dict[Any, int] = {}
    fake_time = SimpleNamespace(perf_counter=lambda: next(ticks) / 1000, monotonic=lambda: next(ticks) / 1000)
    monkeypatch.setattr(executor, "ask", ask)
    monkeypatch.setattr(executor, "start_forkserver", lambda modules: None)
    monkeypatch.setattr(executor, "Child", InProcess)
    monkeypatch.setattr(block, "configure", lambda *arguments: None)
    monkeypatch.setattr(block, "Trainer", fake_trainer)
    monkeypatch.setattr(block, "time", fake_time)
    monkeypatch.setattr(block.machine, "peak_memory_bytes", lambda: 123 * 2**20)
    monkeypatch.setattr(block.machine, "clock_mhz", lambda device: 2000.0)
    monkeypatch.setattr(trainer, "Step", FakeStep)
    monkeypatch.setattr(trainer, "evaluate", evaluate)
    monkeypatch.setattr(trainer, "time", fake_time)


@pytest.mark.usefixtures("faked")
def test_every_number_of_every_table_is_exact(tmp_path: Path, snapshot: Callable[[str, str], None]) -> None:
    (tmp_path / "fake.toml").write_text(SUITE)
    results = run_suite(load_suite(tmp_path / "fake.toml"), tmp_path / "out", device="cpu")
    epochs = results.epochs.merge(results.cells[["key", "label", "batch_size"]], on="key")
    for (label, size, epoch), rows in epochs.groupby(["label", "batch_size", "epoch"]):
        want = SECONDS[label] * (10 if size == 1 else 1) * (2 if epoch == 3 else 1)
        assert rows.train_seconds.tolist() == [want] * 2
        assert rows.test_accuracy.tolist() == [epoch / 10] * 2
        assert rows.train_loss.tolist() == pytest.approx([1 / epoch] * 2)
        assert rows.outlier.tolist() == [epoch == 3] * 2
    text = re.sub(r"(?m)^(- )?(bnpbench|commit|days|software): .*\n", "", render(results))
    snapshot("fake_clock.md", text)
