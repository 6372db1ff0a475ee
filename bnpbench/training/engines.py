"""How the steps of an epoch are run. Every engine runs the same ``Step``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from bnpbench.measure.clock import Clock
from bnpbench.training.step import Step


class Eager:
    """Operator by operator, as PyTorch runs by default."""

    name = "eager"

    def __init__(self, step: Step) -> None:
        self.step = step

    def run(self, batches: Iterable[tuple[Tensor, ...]], lr: Tensor, rates: Mapping[int, float], clock: Clock) -> None:
        """One step a batch.

        Args:
            batches: the step's arguments.
            lr: the optimizer's 0-d learning rate.
            rates: the learning rate to set before a step, by the step's number, where it changes.
            clock: is told of every step's end.
        """
        step, lap = self.step, clock.lap
        for number, batch in enumerate(batches):
            if number in rates:
                lr.fill_(rates[number])
            step(*batch)
            lap()


ENGINES = {"eager": Eager}
