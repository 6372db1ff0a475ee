"""What training makes small."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bnpbench.fields import Kinded, named, one_of_each

if TYPE_CHECKING:
    from torch import Tensor


class LossPlugin(Kinded):
    """A loss. A subclass defines :meth:`of_each`; the rest follows.

    Attributes:
        smooths: whether :meth:`mean` does as ``label_smoothing`` says; else a suite cannot set that with it.
        entropy: whether it is the cross-entropy in nats, of which ``[probe]`` has the Hessian and text bits a token.
    """

    smooths: ClassVar[bool] = False
    entropy: ClassVar[bool] = False

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        """The loss of each label.

        Args:
            output: (N, classes) of the network, or (N, classes, length) of tokens, in at least float32.
            labels: (N,) or (N, length), whole numbers below ``classes``.

        Returns:
            The shape of ``labels``.
        """
        raise NotImplementedError(f"{named(self)} defines no of_each()")

    def mean(self, output: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """What is trained on.

        Args:
            output, labels: as of :meth:`of_each`.
            label_smoothing: share of a label that is spread over all classes; 0 unless ``smooths``.

        Returns:
            The mean over all labels, 0-d.
        """
        return self._of_each(output, labels).mean()

    def total(self, output: Tensor, labels: Tensor) -> Tensor:
        """What the test set is judged by.

        Args:
            output, labels: as of :meth:`of_each`.

        Returns:
            The sum over all labels, 0-d.
        """
        return self._of_each(output, labels).sum()

    def _of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return one_of_each(self, self.of_each(output, labels), labels)
