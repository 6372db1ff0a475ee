"""The learning rate as a function of the epoch and the iteration."""

from __future__ import annotations

from dataclasses import dataclass

from bnpbench.suite.vocabulary import ScheduleOptions, Steps, Warmup


@dataclass(frozen=True)
class Schedule:
    """A learning rate for every step of a run.

    ``steps`` multiplies by its factor after each of its epochs: with epochs (80, 120), epoch 81 is
    the first at a tenth. During a warm-up of T iterations the rate is ``start`` (``constant``) or
    on the line from ``start`` at iteration 0 to the full rate at iteration T (``linear``); from
    iteration T on it is the full rate.

    Args:
        options: the schedule's options.
        rate: the optimizer's learning rate.
        iterations: steps an epoch.
    """

    options: ScheduleOptions
    rate: float
    iterations: int

    def __call__(self, epoch: int, iteration: int) -> float:
        """The learning rate of step ``iteration`` (from 0) of ``epoch`` (from 1)."""
        decays = sum(epoch > last for last in self.options.epochs) if isinstance(self.options, Steps) else 0
        factor = self.options.factor**decays if isinstance(self.options, Steps) else 1.0
        return self._warmed_up((epoch - 1) * self.iterations + iteration) * factor

    @property
    def warmup_iterations(self) -> int:
        """Steps before the full rate; after these the rate changes only between epochs."""
        warmup = self.options.warmup
        return 0 if warmup is None else _length(warmup, self.iterations)

    def _warmed_up(self, step: int) -> float:
        warmup = self.options.warmup
        if warmup is None or step >= self.warmup_iterations:
            return self.rate
        if warmup.kind == "constant":
            return warmup.start
        return warmup.start + (self.rate - warmup.start) * step / self.warmup_iterations


def _length(warmup: Warmup, iterations: int) -> int:
    if warmup.epochs is not None:
        return warmup.epochs * iterations
    assert warmup.iterations is not None  # one of the two is given
    return warmup.iterations
