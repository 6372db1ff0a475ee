"""A learning rate that falls on half a cosine."""

from __future__ import annotations

import math
from typing import Literal

from bnpbench.fields import Fraction
from bnpbench.schedules.base import SchedulePlugin


class Cosine(SchedulePlugin):
    """From the full rate, where the warm-up ends, to ``final`` times it after the last step, on half a cosine.

    Without restarts, and by the step: Loshchilov and Hutter 2017, equation 5.
    """

    kind: Literal["cosine"]
    final: Fraction = 0.0

    def rate(self, full: float, epoch: int, iteration: int, iterations: int, epochs: int) -> float:
        step, warmup = (epoch - 1) * iterations + iteration, self.warmup_iterations(iterations)
        if step < warmup:
            return self.warmed_up(full, step, iterations)
        passed = min((step - warmup) / (epochs * iterations - warmup), 1.0)  # training may go on, for its times
        return full * (self.final + (1 - self.final) * (1 + math.cos(math.pi * passed)) / 2)
