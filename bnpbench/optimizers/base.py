"""What an optimizer is: its options, and the ``torch.optim.Optimizer`` that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from bnpbench.fields import Kinded, PositiveFloat

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class OptimizerPlugin(Kinded):
    """An optimizer.

    Attributes:
        lr: its learning rate, which the schedule changes.
        traced: whether its step is the same each time and reads nothing back to the host, so that it can be compiled
            and recorded; else it runs eagerly alone.
        decays: what ``weight_decay`` does: ``coupled`` adds the weights to the gradients, after the method changed
            them; ``decoupled`` shrinks the weights by themselves. None: not told.
    """

    traced: ClassVar[bool] = True
    decays: ClassVar[Literal["coupled", "decoupled"] | None] = None
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

    def make_for(
        self, model: nn.Module, *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        """:meth:`make` for an optimizer that treats layers by what they are; by default all parameters alike.

        Args:
            model: whose parameters are trained.
            weight_decay, fused, capturable: as of :meth:`make`.

        Returns:
            As of :meth:`make`.

        Raises:
            NotApplicable: it serves none of the model's parameters.
        """
        return self.make(model.parameters(), weight_decay=weight_decay, fused=fused, capturable=capturable)

    def parts(self, model: nn.Module) -> dict[str, list[nn.Parameter]]:
        """Which optimizer serves which parameters, the one that gives its name first; by default it serves all.

        Args:
            model: whose parameters are trained.

        Returns:
            Name of an optimizer to its parameters.
        """
        return {self.kind: list(model.parameters())}

    def follow(self, optimizer: torch.optim.Optimizer, lr: Tensor) -> None:
        """Have an optimizer take its learning rates from a tensor; by default the tensor stands in every group.

        Args:
            optimizer: of :meth:`make_for`.
            lr: 0-d, on the parameters' device; ``self.lr`` at first.
        """
        for group in optimizer.param_groups:
            group["lr"] = lr

    def untraced(self, engine: str) -> str | None:
        """Why it does not run in an engine; None where it does.

        Args:
            engine: ``eager``, ``compiled``, ``graphed``, or ``auto``, which is one that it runs in.

        Returns:
            A sentence without a full stop.
        """
        if self.traced or engine in ("eager", "auto"):
            return None
        return f"the steps of {self.kind} cannot be traced, so that it is not {engine}: it runs eagerly alone"

    def pinned(self) -> Self:
        """With the version of the library that it comes from, if it comes from one, as a setting.

        Raises:
            SuiteError: the library is not installed, or not in the version that is asked for.
        """
        return self

    def build(
        self, model: nn.Module, lr: Tensor | None = None, *, weight_decay: float, fused: bool = False
    ) -> torch.optim.Optimizer:
        """:meth:`make_for`, with the learning rate as a tensor that is changed in place.

        Args:
            model, weight_decay: as of :meth:`make_for`.
            lr: 0-d tensor on the parameters' device, into which the schedule writes; without it a number.
            fused: one kernel for all parameters. Neither the ``meta`` device nor a compiled step with a tensor learning
                rate has those: there the kernels are for-each ones.

        Returns:
            The optimizer; the schedule writes into its learning rate.
        """
        capturable = lr is not None and (not fused or lr.is_cuda)
        optimizer = self.make_for(model, weight_decay=weight_decay, fused=fused, capturable=capturable)
        if lr is not None:  # afterwards: the constructors would read a tensor back to check its sign
            self.follow(optimizer, lr)
        return optimizer
