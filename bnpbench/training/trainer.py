"""One cell in training: set up, warmed up, and run epoch by epoch."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor

from bnpbench import methods, networks
from bnpbench.datasets import Data
from bnpbench.measure import machine
from bnpbench.measure.clock import Reading, clock_for
from bnpbench.suite import Cell, NetworkOptions
from bnpbench.training.augmentation import augmentation
from bnpbench.training.engines import ENGINES
from bnpbench.training.evaluation import evaluate
from bnpbench.training.optimizers import build_optimizer
from bnpbench.training.schedule import Schedule
from bnpbench.training.state import TrainingState, seed_for
from bnpbench.training.step import Step

Row = dict[str, Any]


@dataclass(frozen=True)
class Examples:
    """The data of a cell, resident on its device."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    validation_x: Tensor | None
    validation_y: Tensor | None
    classes: int

    @classmethod
    def resident(cls, data: Data, classes: int, network: NetworkOptions, device: torch.device) -> Examples:
        """Moved to ``device``, in the shape that ``network`` reads."""

        def images(x: Tensor) -> Tensor:
            return x.reshape(len(x), *networks.reads(network, tuple(x.shape[1:]))).to(device)

        held_x, held_y = data.validation_x, data.validation_y
        return cls(
            images(data.train_x),
            data.train_y.to(device),
            images(data.test_x),
            data.test_y.to(device),
            None if held_x is None else images(held_x),
            None if held_y is None else held_y.to(device),
            classes,
        )


class Trainer:
    """A cell's network, method and optimizer on its data.

    Args:
        cell: what to train.
        examples: resident data.
        device: where.
        make_clock: gives the clock of an epoch; tests put a fake one here.
    """

    def __init__(self, cell: Cell, examples: Examples, device: torch.device, make_clock: Any = clock_for) -> None:
        settings = cell.settings
        self.cell, self.settings, self.examples, self.device, self.make_clock = (
            cell,
            settings,
            examples,
            device,
            make_clock,
        )
        torch.manual_seed(seed_for(settings.seed, "global"))
        start = torch.Generator().manual_seed(seed_for(settings.seed, "weights"))
        model = methods.build_model(settings, tuple(examples.train_x.shape[1:]), examples.classes, start)
        self.model = model.to(device).train()
        self.bnp = methods.preconditioner(settings, self.model)
        self.lr = torch.tensor(settings.optimizer.lr, device=device)
        optimizer = build_optimizer(settings, self.model, self.lr)
        self.order = torch.Generator().manual_seed(seed_for(settings.seed, "order"))
        self.noise = torch.Generator(device).manual_seed(seed_for(settings.seed, "augmentation"))
        self.step = Step(
            self.model,
            examples.train_x,
            examples.train_y,
            optimizer,
            bnp=self.bnp,
            penalty=methods.penalty(settings, self.model),
            augment=augmentation(settings.augment, self.noise),
        )
        self.engine = ENGINES[settings.engine](self.step)
        self.state = TrainingState(self.model, optimizer, self.bnp, {"order": self.order, "augmentation": self.noise})
        self.steps = len(examples.train_y) // settings.batch_size
        self.schedule = Schedule(settings.schedule, settings.optimizer.lr, self.steps)
        self.energy = machine.energy_meter(device)
        self.epochs_done = 0

    @property
    def last_batch(self) -> int:
        """Examples left over after the last whole batch of an epoch; dropped."""
        return len(self.examples.train_y) % self.settings.batch_size

    @property
    def finished(self) -> bool:
        return self.epochs_done >= self.settings.epochs

    def warm_up(self, epochs: int) -> None:
        """Train for some epochs and undo them: weights, statistics, random streams are as before."""
        before = self.state.take()
        for _ in range(epochs):
            self._train(epoch=1)
        self.state.put_back(before)

    def epoch(self) -> Row:
        """Train one epoch, evaluate, and give the row of the ``epochs`` table (without key, block and turn)."""
        begin, joules = time.perf_counter(), self.energy()
        number = self.epochs_done + 1
        reading, order, rate = self._train(number)
        after = self.energy()
        row: Row = {
            "epoch": number,
            "train_loss": self.step.loss_sum.item() / self.steps,
            "train_accuracy": (self.step.predicted == self.examples.train_y)[order].double().mean().item(),
            "learning_rate": rate,
            "steps": self.steps,
            "examples": self.steps * self.settings.batch_size,
            "train_seconds": reading.seconds,
            "step_seconds_median": median(reading.laps) if reading.laps else None,
            "step_seconds_p90": quantiles(reading.laps, n=10)[-1] if len(reading.laps) > 1 else None,
            "energy_joules": after - joules if joules is not None and after is not None else None,
        }
        evaluation_begin = time.perf_counter()
        row["test_loss"], row["test_accuracy"] = evaluate(self.model, self.examples.test_x, self.examples.test_y)
        if self.examples.validation_x is not None and self.examples.validation_y is not None:
            row["validation_accuracy"] = evaluate(self.model, self.examples.validation_x, self.examples.validation_y)[1]
        self.epochs_done = number
        end = time.perf_counter()
        row["evaluation_seconds"] = end - evaluation_begin
        row["other_seconds"] = end - begin - row["train_seconds"] - row["evaluation_seconds"]
        return row

    def _train(self, epoch: int) -> tuple[Reading, Tensor, float]:
        """The steps of an epoch: their time, the order of the examples, the last learning rate."""
        batch = self.settings.batch_size
        rates = [self.schedule(epoch, iteration) for iteration in range(self.steps)]
        changes = {i: r for i, r in enumerate(rates) if i == 0 or r != rates[i - 1]}
        self.step.loss_sum.zero_()
        clock = self.make_clock(self.device, self.steps)
        gc.collect()
        gc.disable()  # a collection in the middle of a step would be timed as the method's
        try:
            clock.start()
            order = torch.randperm(len(self.examples.train_y), generator=self.order)[: self.steps * batch]
            order = order.to(self.device)
            self.engine.run(order.view(self.steps, batch).unbind(), self.lr, changes, clock)
            reading = clock.stop()
        finally:
            gc.enable()
        return reading, order, rates[-1]


def diverged(row: Row) -> bool:
    """Whether an epoch's losses stopped being numbers."""
    return not (math.isfinite(row["train_loss"]) and math.isfinite(row["test_loss"]))
