"""The learning rate as a function of the epoch and the iteration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from bnpbench.fields import Kinded, Options, Positive, PositiveFloat


class Warmup(Options):
    """From ``start`` to the optimizer's learning rate: held constant, or on a line."""

    kind: Literal["constant", "linear"]
    start: PositiveFloat
    iterations: Positive | None = None
    epochs: Positive | None = None

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.iterations is None) == (self.epochs is None):
            raise ValueError("give exactly one of iterations and epochs")
        return self

    def length(self, iterations: int) -> int:
        """Steps that it takes, at so many steps an epoch."""
        return self.iterations or (self.epochs or 0) * iterations


class SchedulePlugin(Kinded):
    """A learning rate for every step of a run, after a warm-up if there is one.

    During a warm-up of T iterations the rate is ``start`` (``constant``) or on the line from ``start`` at iteration 0
    to the full rate at iteration T (``linear``); from iteration T on it is the full rate. All of it times
    :meth:`share`. A subclass whose rate changes within an epoch defines :meth:`rate` instead.
    """

    warmup: Warmup | None = None

    def share(self, epoch: int) -> float:
        """The share of the optimizer's learning rate that an epoch (from 1) has.

        Args:
            epoch: from 1.

        Returns:
            A factor; 1 leaves the optimizer's learning rate.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no share()")

    def over(self, epochs: int) -> Self:
        """The same schedule where a training is cut short, or goes on for longer.

        Args:
            epochs: of the training as the suite has it.

        Returns:
            One that does in any number of epochs what this one does in these.
        """
        return self

    def unused(self, epochs: int) -> str | None:
        """What of it comes after so many epochs, in words; None where all of it is used.

        Args:
            epochs: of the training.

        Returns:
            A sentence without a full stop, or None.
        """
        return None

    def rate(self, full: float, epoch: int, iteration: int, iterations: int, epochs: int) -> float:
        """The learning rate of a step.

        Args:
            full: the optimizer's learning rate.
            epoch: from 1.
            iteration: of the epoch, from 0.
            iterations: steps an epoch.
            epochs: of the training.

        Returns:
            The learning rate.
        """
        return self.warmed_up(full, (epoch - 1) * iterations + iteration, iterations) * self.share(epoch)

    def warmup_iterations(self, iterations: int) -> int:
        """Steps before the full rate, at so many steps an epoch.

        Args:
            iterations: steps an epoch.

        Returns:
            A number of steps; 0 without a warm-up.
        """
        return 0 if self.warmup is None else self.warmup.length(iterations)

    def warmed_up(self, full: float, step: int, iterations: int) -> float:
        """The rate of a step by the warm-up alone.

        Args:
            full: the optimizer's learning rate.
            step: from 0.
            iterations: steps an epoch.

        Returns:
            The learning rate: ``full`` from the end of the warm-up on.
        """
        length = self.warmup_iterations(iterations)
        if self.warmup is None or step >= length:
            return full
        start = self.warmup.start
        return start if self.warmup.kind == "constant" else start + (full - start) * step / length
