"""A learning rate that falls on half a cosine."""

from __future__ import annotations

import math
from typing import Literal

from bnpbench.fields import Fraction, Positive
from bnpbench.schedules.base import SchedulePlugin


class Cosine(SchedulePlugin):
    """From the full rate, where the warm-up ends, to ``final`` times it after the last step, on half a cosine.

    Without restarts, and by the step: Loshchilov and Hutter 2017, equation 5.
    """

    kind: Literal["cosine"]
    final: Fraction = 0.0
    epochs: Positive | None = None  # at whose end it arrives; absent: those of the training

    def over(self, epochs: int) -> Cosine:
        return self.model_copy(update={"epochs": self.epochs or epochs})

    def rate(self, full: float, epoch: int, iteration: int, iterations: int, epochs: int) -> float:
        step, warmup = (epoch - 1) * iterations + iteration, self.warmup_iterations(iterations)
        if step < warmup:
            return self.warmed_up(full, step, iterations)
        falling = max((self.epochs or epochs) * iterations - warmup, 1)
        passed = min((step - warmup) / falling, 1.0)  # training may go on, for its times
        return full * (self.final + (1 - self.final) * (1 + math.cos(math.pi * passed)) / 2)
