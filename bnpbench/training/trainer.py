"""One cell in training: set up, warmed up, and run epoch by epoch."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from statistics import median, quantiles

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from bnpbench.bnp import BNP
from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.bnp.tracker import Tracker
from bnpbench.fields import unwritten
from bnpbench.measure import machine
from bnpbench.measure.clock import Clock, Reading, clock_for
from bnpbench.measure.conditioning import Probe
from bnpbench.measure.kernels import kernels_of
from bnpbench.metrics.base import MetricPlugin
from bnpbench.records.rows import CellRow, EpochRow, StepRow, own_text
from bnpbench.suite import Cell
from bnpbench.training import engines, models
from bnpbench.training.clipping import clipping
from bnpbench.training.examples import MEMORY_FORMATS, Examples, Pairs, Resident
from bnpbench.training.parallel import Group
from bnpbench.training.state import TrainingState, random_state, seed_for, set_random_state
from bnpbench.training.step import Step, autocast, scaler


class Trainer:
    """A cell's network, method and optimizer on its data.

    Args:
        cell: what to train.
        examples: its data.
        device: where.
        probe: looks at the Hessian before some of the steps, off the clock; its rows gather in ``probed``.
        make_clock: gives the clock of an epoch.
        now: the time in seconds, by which evaluation is measured.
        group: the ranks that share the work; by default this process is alone.
    """

    def __init__(
        self,
        cell: Cell,
        examples: Examples,
        device: torch.device,
        probe: Probe | None = None,
        make_clock: Callable[[torch.device, int], Clock] = clock_for,
        group: Group | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        settings = cell.settings
        self.settings, self.examples, self.device = settings, examples, device
        self.probe, self.make_clock, self.now = probe, make_clock, now
        self.group = group or Group(device)
        torch.manual_seed(seed_for(settings.seed, "global"))
        np.random.seed(seed_for(settings.seed, "global") % 2**32)  # of libraries that draw from it
        start = torch.Generator().manual_seed(seed_for(settings.seed, "weights"))
        model = models.build_model(settings, examples.input_shape, examples.classes, start)
        self.model = model.to(device).to(memory_format=MEMORY_FORMATS[settings.memory_format]).train()
        self.bnp = models.preconditioner(settings, self.model, examples.input_shape)
        self.lr = torch.tensor(settings.optimizer.lr, device=device)
        fused = settings.engine == "eager" or settings.precision == "fp16"
        optimizer = models.build_optimizer(settings, self.model, self.lr, fused=fused)
        self.scaler = scaler(settings, optimizer, device)
        self.order = torch.Generator().manual_seed(seed_for(settings.seed, "order"))
        self.noise = torch.Generator(device).manual_seed(seed_for(settings.seed, "augmentation"))
        self.autocast = autocast(settings, device)
        mean = settings.loss.mean
        if settings.label_smoothing:  # else nothing is said of it: a loss of a user's own need not know the word
            mean = partial(mean, label_smoothing=settings.label_smoothing)
        self.step = Step(
            self.group.wrapped(self.model),
            examples.labels,
            optimizer,
            images=examples.images if isinstance(examples, Resident) else None,
            bnp=self.bnp,
            loss=self.group.loss(settings.batch_size, mean),
            penalty=models.penalty(settings, self.model),
            augment=settings.augment != "none" and isinstance(examples, Resident),
            autocast=self.autocast,
            scaler=self.scaler,
            clip=clipping(settings, self.model),
            accumulate=settings.accumulate,
        )
        generators = {"order": self.order, "augmentation": self.noise}
        in_place = settings.optimizer.traced
        self.state = TrainingState(self.model, optimizer, self.bnp, generators, self.scaler, in_place)
        self.steps = len(examples.labels) // settings.batch_size
        self.energy = machine.energy_meter(device)
        self.look: Callable[[], object] = lambda: None  # at the machine, at the end of each epoch's steps
        self.trained: Callable[[], object] = lambda: None  # behind the steps of an epoch, before it is evaluated
        self.peak_bytes: int | None = None  # allocated on a CUDA device, by all, during the steps of the last epoch
        self.engine = engines.eager(self.step, ())
        self.epochs_done = 0
        self.probed: list[StepRow] = []

    @property
    def last_batch(self) -> int:
        """Examples left over after the last whole batch of an epoch; dropped."""
        return len(self.examples.labels) % self.settings.batch_size

    def rate(self, epoch: int, iteration: int) -> float:
        """The learning rate of a step, of an epoch (from 1) and an iteration of it (from 0)."""
        settings = self.settings
        return settings.schedule.rate(settings.optimizer.lr, epoch, iteration, self.steps, settings.epochs)

    @property
    def finished(self) -> bool:
        return self.epochs_done >= self.settings.epochs

    def prepare(self) -> None:
        """Trace, compile or record the step, as the engine does; leaves no trace in weights, statistics or dropout."""
        drawn = random_state()
        count = self.settings.batch_size
        part = self.group.share(count)
        first = next(iter(self.examples.training(torch.arange(count), count, seed=0, part=part)))
        self.engine = engines.prepare(self.settings.engine, self.step, self.state, first)
        # DDP orders its buckets anew after a first pass; a resumed cell has to add as before. And where the very first
        # step is left out because it overflowed, torch's fused SGD goes on with the memory its momentum was given. The
        # fused form of BNP is compiled by its first step; with the update, once the optimizer has stepped itself.
        compiles = self.engine.active == "eager" and isinstance(self.bnp, BNP) and bool(self.bnp.fused)
        if self.group.ranks > 1 or self.scaler is not None or compiles:
            before = self.state.snapshot()
            for _ in range(2 if compiles else 1):
                self.step(*first)
            self.state.restore(before)
        set_random_state(drawn)

    def columns(self) -> CellRow:
        """What the ``cells`` table tells of the step that really runs, once it is prepared."""
        columns = self.engine.columns()
        return {**columns, "bnp_form": self.bnp.form} if isinstance(self.bnp, BNP) else columns

    @property
    def unfused(self) -> str | None:
        """Why BNP is not in the fused form that it was to be in."""
        return self.bnp.unfused if isinstance(self.bnp, BNP) else None

    def warm_up(self, epochs: int) -> None:
        """Train for some epochs and undo them: weights, statistics, random streams are as before."""
        before, drawn = self.state.snapshot(), random_state()
        for _ in range(epochs):
            self._train(epoch=1, probe=None)
        self.state.restore(before)
        set_random_state(drawn)

    def kernels(self) -> int | None:
        """What a step queues on a CUDA device, looked at under the profiler; None where that sees nothing.

        Of one without a refresh, where the method refreshes what it keeps in some.

        To be asked when all is measured: it takes a step, and the profiler may leave something behind.
        """
        if self.device.type != "cuda":
            return None
        count = self.settings.batch_size
        part = self.group.share(count)
        (batch,) = self.examples.training(torch.arange(count), count, seed=0, part=part)
        ordinary = self.bnp.turn(self.bnp.turns[-1]) if isinstance(self.bnp, Rewriter) else nullcontext()
        with ordinary:
            return kernels_of(lambda: self.engine.call(*batch))

    def epoch(self) -> EpochRow:
        """Train one epoch, evaluate, and give the row (without key, block and turn)."""
        begin = self.now()
        number = self.epochs_done + 1
        refreshing = self._refreshing()
        reading, joules, order, rate = self._train(number, self.probe)
        ordinary, with_refresh = _apart(reading.laps, refreshing)
        self.peak_bytes = reading.peak_bytes
        correct = (self.step.predicted == self.examples.labels)[order].sum().item()
        loss, correct, joules = self.group.total(self.step.loss_sum.item(), correct, joules)
        row: EpochRow = {
            "epoch": number,
            "train_loss": loss / self.group.ranks / self.steps,
            "train_accuracy": correct / (self.steps * self.settings.batch_size * self.examples.labels[0].numel()),
            "learning_rate": rate,
            "steps": self.steps,
            "examples": self.steps * self.settings.batch_size,
            "train_seconds": reading.seconds,
            "step_seconds_median": median(ordinary) if ordinary else None,
            "step_seconds_p90": quantiles(reading.laps, n=10)[-1] if len(reading.laps) > 1 else None,
            "refresh_seconds_median": median(with_refresh) if with_refresh else None,
            "energy_joules": None if math.isnan(joules) else joules,
        }
        self.trained()
        evaluation_begin = self.now()
        row |= self._scores()
        self.epochs_done = number
        end = self.now()
        row["evaluation_seconds"] = end - evaluation_begin
        row["other_seconds"] = end - begin - row["train_seconds"] - row["evaluation_seconds"]
        return row

    def _refreshing(self) -> list[bool] | None:
        """Of each step of the epoch to come, whether it has a refresh; None where steps do not differ."""
        if not isinstance(self.bnp, Rewriter) or len(self.bnp.turns) == 1:
            return None
        return [self.bnp.refreshes(ahead) for ahead in range(self.steps)]

    @torch.no_grad()
    def evaluate(self, batches: Pairs, metrics: Sequence[MetricPlugin] = ()) -> list[float]:
        """Mean loss, accuracy and further metrics in eval mode; a shorter last batch counts by its size.

        Args:
            batches: images and labels on the device.
            metrics: the further ones.
        """
        self.model.eval()
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        sums: list[Tensor | None] = [None] * len(metrics)
        count = 0
        for images, labels in batches:
            with unwritten(self.settings.network, images=images):
                output = self.model(images)
            wide = at_least_float32(output)
            with unwritten(self.settings.loss, output=wide, labels=labels):
                loss += self.settings.loss.total(wide, labels)
            correct += (output.argmax(1) == labels).sum()
            count += labels.numel()
            with torch.autocast(self.device.type, enabled=False):
                sums = [one.added(before, wide, labels) for one, before in zip(metrics, sums, strict=True)]
        self.model.train()
        values = [one.number(total) for one, total in zip(metrics, sums, strict=True) if total is not None]
        return [loss.item() / count, correct.item() / count, *values]

    def _scores(self) -> EpochRow:
        """What the first rank finds on the test and validation sets: it alone has the statistics that count."""
        if getattr(self.settings.method, "inference", None) == "frozen":
            with self.autocast:
                update_bn(self._training_images(), self.model)
        metrics, held_out = self.settings.metrics, self.examples.validation()
        found = [math.nan] * (3 + len(metrics))
        if self.group.rank == 0:
            with self.autocast:
                found[1:] = self.evaluate(self.examples.test(), metrics)
                if held_out is not None:
                    found[0] = self.evaluate(held_out)[1]
        held_out_accuracy, loss, accuracy, *values = self.group.broadcast(*found)
        numbers = own_text({one.column: value for one, value in zip(metrics, values, strict=True)})
        row: EpochRow = {"test_loss": loss, "test_accuracy": accuracy, "metrics": numbers}
        if self.settings.network.tokens and self.settings.loss.entropy:
            row["test_bits_per_token"] = loss / math.log(2)
        return row if held_out is None else {**row, "validation_accuracy": held_out_accuracy}

    def _training_images(self) -> Iterator[Tensor]:
        """Batches as in training, in an order of their own, the same after every epoch.

        ``update_bn`` puts into running values the average of their statistics in the network as it stands: Algorithm 2
        of Ioffe and Szegedy 2015. In training nothing reads these values.
        """
        batch, seed = self.settings.batch_size, seed_for(self.settings.seed, "frozen statistics")
        order = torch.randperm(len(self.examples.labels), generator=torch.Generator().manual_seed(seed))
        whole = order[: self.steps * batch]
        for index, *streamed in self.examples.training(whole, batch, seed, self.group.share(batch)):
            yield self.step.data(index, *(streamed or (None, None)))[0]

    def _train(self, epoch: int, probe: Probe | None) -> tuple[Reading, float, Tensor, float]:
        """The steps of an epoch: their time and joules, the examples that they took, the last learning rate.

        What an epoch asks of the host beside its steps - to draw an order, to copy it - comes before the clock starts:
        it is the same for every method, and would draw the ratios of their times towards 1.
        """
        batch = self.settings.batch_size
        part = self.group.share(batch)
        rates = [self.rate(epoch, iteration) for iteration in range(self.steps)]
        changes = {i: r for i, r in enumerate(rates) if i > 0 and r != rates[i - 1]}
        self.lr.fill_(rates[0])
        clock = self.make_clock(self.device, self.steps)
        self.step.begin_epoch(self.noise)
        order = torch.randperm(len(self.examples.labels), generator=self.order)[: self.steps * batch]
        seed = seed_for(self.settings.seed, f"crops of epoch {epoch}")
        batches = self.examples.training(order, batch, seed, part)
        if probe is not None:
            batches = self._probed(batches, probe, epoch, clock)
        gc.collect()
        gc.disable()  # a collection in the middle of a step would be timed as the method's
        try:
            before = self.energy.read()
            clock.start()
            engines.run(self.engine.call, batches, self.lr, changes, clock)
            reading = clock.stop(self.look)
            joules = self.energy.used(before, reading.seconds)
        finally:
            gc.enable()
        return reading, self._own(joules), order.view(-1, batch)[:, part].flatten(), rates[-1]

    def _own(self, joules: float | None) -> float:
        """Joules to be added over the ranks: NaN where nobody tells; the CPU's are of all ranks, and the first's."""
        if self.group.rank > 0 and self.device.type == "cpu":
            return 0.0
        return math.nan if joules is None else joules

    def _probed(
        self, batches: Iterable[tuple[Tensor, ...]], probe: Probe, epoch: int, clock: Clock
    ) -> Iterator[tuple[Tensor, ...]]:
        """The batches, each shown to the probe before its step."""
        bnp = self.bnp if isinstance(self.bnp, Tracker) else None
        for step, batch in enumerate(batches, start=1 + (epoch - 1) * self.steps):
            if probe.due(epoch, step):
                clock.pause()
                images = batch[1] if len(batch) > 1 else self.step.gather(batch[0])[0]
                self.probed += probe.rows(self.model, images, bnp, epoch, step)
                clock.resume()
            yield batch


def _apart(laps: tuple[float, ...], refreshing: list[bool] | None) -> tuple[Sequence[float], Sequence[float]]:
    """The seconds of ordinary steps, and of those with a refresh; none of these where steps were timed together."""
    if refreshing is None or len(laps) != len(refreshing):
        return laps, ()
    ordinary, with_refresh = (
        [lap for lap, refreshes in zip(laps, refreshing, strict=True) if refreshes is wanted]
        for wanted in (False, True)
    )
    return ordinary, with_refresh


def diverged(row: EpochRow) -> bool:
    """Whether an epoch's losses stopped being numbers."""
    return not (math.isfinite(row["train_loss"]) and math.isfinite(row["test_loss"]))
