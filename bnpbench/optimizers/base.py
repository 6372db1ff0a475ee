"""What an optimizer is: its options, and the ``torch.optim.Optimizer`` that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bnpbench.fields import Kinded, PositiveFloat

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class OptimizerPlugin(Kinded):
    """An optimizer.

    Attributes:
        lr: its learning rate, which the schedule changes.
    """

    lr: PositiveFloat

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        """torch's optimizer over the parameters, at the learning rate ``self.lr``.

        Args:
            parameters: that are trained.
            weight_decay: what it adds to the gradients.
            fused: whether one kernel is to serve all parameters; else the kernels are for-each ones.
            capturable: whether step counts must be tensors on the device, so that a step can be recorded.

        Returns:
            An optimizer with one learning rate in each of its groups.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no make()")

    def build(
        self, parameters: Iterable[nn.Parameter], lr: Tensor | None = None, *, weight_decay: float, fused: bool = False
    ) -> torch.optim.Optimizer:
        """:meth:`make`, with the learning rate as a tensor that is changed in place.

        Args:
            parameters, weight_decay: as of :meth:`make`.
            lr: 0-d tensor on the parameters' device, into which the schedule writes; without it a number.
            fused: one kernel for all parameters. Neither the ``meta`` device nor a compiled step with a tensor learning
                rate has those: there the kernels are for-each ones.

        Returns:
            The optimizer; the schedule writes into its learning rate.
        """
        capturable = lr is not None and (not fused or lr.is_cuda)
        optimizer = self.make(parameters, weight_decay=weight_decay, fused=fused, capturable=capturable)
        if lr is not None:  # afterwards: the constructors would read a tensor back to check its sign
            for group in optimizer.param_groups:
                group["lr"] = lr
        return optimizer
