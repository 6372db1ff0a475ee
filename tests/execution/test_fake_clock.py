"""A whole suite under a fake clock and a fake step: every number of its report is known beforehand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from bnpbench import load_suite, read_results
from bnpbench.execution.block import BlockRun
from bnpbench.execution.messages import Epoch, Finished, Message, Phase, RunBlock, Tell
from bnpbench.execution.options import Options, check
from bnpbench.execution.progress import Progress
from bnpbench.execution.run import execute
from bnpbench.measure.clock import Reading
from bnpbench.measure.step_costs import Costs
from bnpbench.report import render
from bnpbench.training.trainer import Trainer
from tests.support.inprocess import InProcess
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

    def __init__(self, labels: Tensor) -> None:
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

    def stop(self, look: Callable[[], object]) -> Reading:
        look()
        return Reading(self.seconds, (self.seconds / self.steps,) * self.steps)


class FakeTrainer(Trainer):
    """Takes the fake step, by the fake clock; its accuracy is a tenth of the epoch, its loss two over the epoch."""

    def __init__(self, cell: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(cell, *arguments, **options)
        step, seconds = FakeStep(self.examples.labels), SECONDS[cell.settings.method.kind]
        self.step: Any = step
        self.make_clock: Any = lambda device, steps: FakeClock(seconds, steps, step.epochs + 1)
        self.evaluations = 0

    def evaluate(self, batches: Any, metrics: Any = ()) -> list[float]:
        self.evaluations += 1
        return [2 / self.evaluations, self.evaluations / 10]


def faked() -> InProcess:
    ticks = (tick / 1000 for tick in count())
    gauges: Any = SimpleNamespace(
        peak_memory_bytes=lambda: 123 * 2**20,
        clock_mhz=lambda device: 2000.0,
        throttled=lambda device: None,
        seconds_of_others=lambda: None,
    )

    def run(request: RunBlock, emit: Tell) -> None:
        make_trainer = partial(FakeTrainer, now=ticks.__next__)
        BlockRun(request, emit, make_trainer=make_trainer, now=ticks.__next__, gauges=gauges).run()

    def decided_by_torch(costs: Costs) -> Costs:
        return replace(costs, columns=replace(costs.columns, flops_method_executed=4321, operators_per_step=50))

    return InProcess(ENVIRONMENT, run, decided_by_torch)


def test_every_number_of_every_table_is_exact(tmp_path: Path, snapshot: Callable[[str, str], None]) -> None:
    (tmp_path / "fake.toml").write_text(SUITE)
    options = Options(out=tmp_path / "out", device="cpu")
    execute(check(load_suite(tmp_path / "fake.toml"), options), options, Progress(), faked())
    results = read_results(tmp_path / "out")
    epochs = results.epochs.merge(results.cells[["key", "label", "batch_size"]], on="key")
    for (label, size, epoch), rows in epochs.groupby(["label", "batch_size", "epoch"]):
        want = SECONDS[label] * (10 if size == 1 else 1) * (2 if epoch == 3 else 1)
        assert rows.train_seconds.tolist() == [want] * 2
        assert rows.test_accuracy.tolist() == [epoch / 10] * 2
        assert rows.train_loss.tolist() == pytest.approx([1 / epoch] * 2)
        assert rows.outlier.tolist() == [epoch == 3] * 2
    text = re.sub(r"(?m)^(- )?(bnpbench|commit|days|software): .*\n", "", render(results))
    snapshot("fake_clock.md", text)


@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_phases_are_told_outside_of_timed_steps(scale: float, tmp_path: Path) -> None:
    """Of epochs shorter than a second only the first says that it begins: what is told of each in the end suffices."""
    told: list[Message | str] = []

    class TimedClock(FakeClock):
        def start(self) -> None:
            told.append("timed")

        def stop(self, look: Callable[[], object]) -> Reading:
            told.append("end")
            return super().stop(look)

    class TimedTrainer(FakeTrainer):
        def __init__(self, cell: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(cell, *arguments, **options)
            step, seconds = self.step, SECONDS[cell.settings.method.kind] * scale
            self.make_clock = lambda device, steps: TimedClock(seconds, steps, step.epochs + 1)

    def run(request: RunBlock, emit: Tell) -> None:
        ticks = (tick / 1000 for tick in count())
        BlockRun(request, lambda message: (told.append(message), emit(message))[1], make_trainer=TimedTrainer,
                 now=ticks.__next__).run()  # fmt: skip

    text = SUITE.replace("epochs = 8", "epochs = 3").replace('interleave = ["method"]', "warmup_epochs = 1")
    (tmp_path / "fake.toml").write_text(text)
    only = ("method=bnp", "batch_size=10", "seed=1")
    options = Options(out=tmp_path / "out", device="cpu", only=only)
    execute(check(load_suite(tmp_path / "fake.toml"), options), options, Progress(), InProcess(ENVIRONMENT, run))
    words = [
        one if isinstance(one, str) else one.text if isinstance(one, Phase) else type(one).__name__ for one in told
    ]
    steps = ["timed", "end"]
    first = ["epoch 1/3", *steps, "evaluation after epoch 1/3", "Epoch"]
    long = [[f"epoch {n}/3", *steps, f"evaluation after epoch {n}/3", "Epoch"] for n in (2, 3)]
    rest = long if scale == 1.0 else [[*steps, "Epoch"]] * 2
    assert words == ["data", "warm-up", *steps, *first, *rest[0], *rest[1], "Finished"]
    assert {one.key for one in told if isinstance(one, (Phase, Epoch, Finished))} == {told[0].key}  # type: ignore[union-attr]
