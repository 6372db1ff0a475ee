"""What the test set is judged by beside loss and accuracy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Kinded, named, one_of_each, unwritten
from bnpbench.records.rows import own_metric

if TYPE_CHECKING:
    from torch import Tensor


class MetricPlugin(Kinded):
    """A number of the test set, taken after every epoch, off the clock.

    A subclass defines :meth:`of_each` where the number is a mean over labels, else :meth:`sums` and :meth:`value`.

    Attributes:
        better: whether a higher or a lower number is better.
    """

    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @classmethod
    def fault(cls) -> str | None:
        """What the class lacks to be a metric."""
        if cls.better not in ("higher", "lower"):
            return f'has better = {cls.better!r}; it is "higher" or "lower"'
        given = cls.of_each is not MetricPlugin.of_each or cls.sums is not MetricPlugin.sums
        return None if given else "defines neither of_each() nor sums()"

    @property
    def name(self) -> str:
        """What tells it from the other metrics of a cell: letters, digits and ``+ - _``. By default its kind."""
        return self.kind

    @property
    def column(self) -> str:
        """How suites and reports call its numbers: ``score.NAME``, or ``error.NAME`` where lower is better."""
        return own_metric(self.name, self.better)

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        """The number of each label, of which the metric is the mean.

        Args:
            output: (N, classes) of the network, or (N, classes, length) of tokens, in at least float32.
            labels: (N,) or (N, length), whole numbers below ``classes``.

        Returns:
            The shape of ``labels``.
        """
        raise NotImplementedError(f"{named(self)} defines neither of_each() nor sums()")

    def sums(self, output: Tensor, labels: Tensor) -> Tensor:
        """What is added up over the batches of the test set, in float64, on the device: do not read it back.

        Args:
            output, labels: of a batch, as of :meth:`of_each`; the last one may be smaller.

        Returns:
            Of the same shape for every batch, whatever its size. By default (2,): the sum of :meth:`of_each`, and the
            number of labels.

        Raises:
            ValueError: :meth:`of_each` does not give a number for each label.
        """
        import torch

        total = one_of_each(self, self.of_each(output, labels), labels).sum(dtype=torch.float64)
        return torch.stack((total, total.new_full((), labels.numel())))

    def value(self, sums: Tensor) -> Tensor | float:
        """The metric.

        Args:
            sums: of all batches together, float64, on the CPU.

        Returns:
            One number; NaN where there is none. By default, of (2,), the first by the second.

        Raises:
            ValueError: a class with sums of its own leaves it to this one, which divides two numbers.
        """
        if sums.shape != (2,):
            raise ValueError(f"{named(self)} defines no value(), and its sums are {tuple(sums.shape)}, not (2,)")
        return sums[0] / sums[1]

    def added(self, before: Tensor | None, output: Tensor, labels: Tensor) -> Tensor:
        """:meth:`sums` of a further batch and of those before it.

        Args:
            before: of the batches before it; None before the first.
            output, labels: of the further batch, as of :meth:`of_each`.

        Returns:
            The shape of ``before``, in float64.

        Raises:
            ValueError: they are no tensor, or of another shape than before; ``output`` or ``labels`` was written to.
        """
        import torch

        with unwritten(self, output=output, labels=labels):
            found = self.sums(output, labels)
        if not isinstance(found, torch.Tensor):
            raise ValueError(f"{named(self)}.sums gives {found!r}, not a tensor")
        if before is not None and found.shape != before.shape:
            shapes = f"{tuple(found.shape)} after {tuple(before.shape)}"
            raise ValueError(f"{named(self)}.sums gives {shapes}: one shape is needed for batches of any size")
        return found.double() if before is None else before + found.double()

    def number(self, sums: Tensor) -> float:
        """:meth:`value` of all batches together.

        Args:
            sums: as of :meth:`added`, on any device.

        Returns:
            The metric.

        Raises:
            ValueError: it is not one number.
        """
        import torch

        found = self.value(sums.cpu())
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor of several
            if not isinstance(found, str | bytes):  # of which float() would read some
                return float(found)
        told = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else repr(found)
        raise ValueError(f"{named(self)}.value gives {told}, not one number")
