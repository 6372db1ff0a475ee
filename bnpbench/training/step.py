"""One training step on resident data: the one object that every engine runs; and the arithmetic that it runs in.

``precision = "float32"`` is what it says: CUDA's matrix products and convolutions do not round to TF32, which torch's
default allows convolutions to do. ``tf32`` lets both. ``bf16`` and ``fp16`` run forward passes and the loss under
autocast: weights, gradients, optimizer, and the statistics of normalizations and of BNP stay in float32, and backward
passes follow the forward ones. In ``fp16`` gradients would underflow: the loss is scaled before the backward pass, the
gradients are unscaled before anything looks at them, and a step whose gradients overflowed is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from bnpbench.bnp import BNP
from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.errors import NotApplicable
from bnpbench.fields import AUTOCAST
from bnpbench.suite import Settings
from bnpbench.training.augmentation import crop_flip, draw_crop_flips

if TYPE_CHECKING:
    from bnpbench.methods.base import Preconditioner


PHASES = ("data", "forward", "backward", "precondition", "update")


class Step:
    """Gather, forward, loss, backward, precondition, update.

    What varies from step to step is a tensor changed in place (``loss_sum``, ``predicted``, the learning rate,
    statistics); nothing is read back to the host, so that a step can be queued, captured or compiled. Nothing is drawn
    at random but by layers of the network that do so, as dropout.

    Args:
        model: in train mode.
        labels: of all training examples, (examples,) int64 on the device; of tokens (examples, length).
        images: of all of them, (examples, ...) on the device, where they are resident.
        optimizer: over the model's parameters, its learning rate a 0-d tensor.
        bnp: the preconditioner, if the method has one.
        loss: of logits and labels, 0-d; the mean over the batch, or a rank's part of it.
        penalty: gives a term that is added to the loss before the backward pass, if the method has one.
        augment: crop and flip the images at random, by the ``draws`` of the epoch.
        autocast: goes around the forward pass and the loss.
        scaler: of the loss; its optimizer is one that leaves out an overflowed step by itself, on the device.
        clip: makes gradients smaller before the update.
        accumulate: equal micro-batches of a batch, whose gradients are added up before the update.

    Attributes:
        joins: whether the method may take the optimizer's step with its own.
        updated: whether it did in the last step, for all parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
        *,
        images: Tensor | None = None,
        bnp: Preconditioner | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        penalty: Callable[[], Tensor] | None = None,
        augment: bool = False,
        autocast: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
        scaler: GradScaler | None = None,
        clip: Callable[[], object] | None = None,
        accumulate: int = 1,
    ) -> None:
        self.model, self.images, self.labels, self.optimizer = model, images, labels, optimizer
        self.bnp, self.loss, self.penalty, self.autocast, self.scaler = bnp, loss, penalty, autocast, scaler
        self.clip, self.accumulate = clip, accumulate
        # Nothing comes between the method's change of the gradients and the update: one function may do both.
        self.joins, self.updated = clip is None and scaler is None, False
        self.draws = labels.new_zeros(len(labels), 3) if augment else None
        self.parameters = list(model.parameters())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=labels.device)
        self.predicted = torch.full_like(labels, -1)

    def begin_epoch(self, noise: torch.Generator) -> None:
        """Forget the last epoch's loss, and draw this one's crops and flips for all examples."""
        self.loss_sum.zero_()
        if self.draws is not None:
            self.draws.copy_(draw_crop_flips(len(self.draws), noise, self.draws.device))

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels of resident examples."""
        assert self.images is not None
        return in_order(self.images, index), self.labels.index_select(0, index)

    def __call__(self, index: Tensor, images: Tensor | None = None, labels: Tensor | None = None) -> None:
        """One step, in the order of ``PHASES``.

        Args:
            index: numbers of the examples, (batch,) int64.
            images, labels: of these examples, where they are streamed; else they are gathered.
        """
        images, labels = self.data(index, images, labels)
        for parameter in self.parameters:
            parameter.grad = None
        output, loss = self._passes(images, labels)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        self.precondition()
        self.update(index, output, loss)

    def _passes(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Forward and backward, of one micro-batch after the other; logits and mean loss of all."""
        if self.accumulate == 1:
            output, loss = self.forward(images, labels)
            self.look_back(output)
            self.backward(loss)
            return output, loss
        outputs, losses, size = list[Tensor](), list[Tensor](), len(labels) // self.accumulate
        for part in zip(images.split(size), labels.split(size), strict=True):
            output, loss = self.forward(*part)
            self.look_back(output)
            self.backward(loss)
            outputs.append(output.detach())  # its graph goes before the next one comes
            losses.append(loss.detach())
        return torch.cat(outputs), torch.stack(losses).mean()

    def data(self, index: Tensor, images: Tensor | None, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The batch, augmented."""
        if images is None or labels is None:
            images, labels = self.gather(index)
        if self.draws is not None:
            images = crop_flip(images, self.draws.index_select(0, index))
        return images, labels

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the loss, of a micro-batch."""
        with self.autocast:
            output = self.model(images)
            return output, self.loss(at_least_float32(output), labels)

    def look_back(self, output: Tensor) -> None:
        """The method's further backward passes, if it has any, which leave gradients as they are."""
        if isinstance(self.bnp, Rewriter):
            self.bnp.look_back(output)

    def backward(self, loss: Tensor) -> None:
        """The gradients of the loss of a micro-batch, and of the method's penalty; added to those that are there."""
        objective = loss if self.penalty is None else loss + self.penalty()
        if self.accumulate > 1:
            objective = objective / self.accumulate
        (objective if self.scaler is None else self.scaler.scale(objective)).backward()

    def precondition(self) -> None:
        """The method's change of the gradients, if it has one; with the update, where one function does both."""
        if self.joins and isinstance(self.bnp, BNP):
            self.updated = self.bnp.precondition_with(self.optimizer)
        elif self.bnp is not None:
            self.bnp.precondition()

    def update(self, index: Tensor, output: Tensor, loss: Tensor) -> None:
        """The optimizer's step on the clipped gradients that are left, and what is kept of this one."""
        if self.clip is not None:
            self.clip()
        if self.scaler is None:
            if not self.updated:
                self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.loss_sum.add_(loss.detach())
        self.predicted.index_copy_(0, index, output.detach().argmax(1))


def in_order(images: Tensor, index: Tensor) -> Tensor:
    """The images of these numbers, in the memory format that they are stored in: ``index_select`` forgets it."""
    if images.is_contiguous():
        return images.index_select(0, index)
    return images.movedim(1, -1).index_select(0, index).movedim(-1, 1)


def set_precision(settings: Settings) -> None:
    """Set this process up for a cell's precision; cells that share a process agree on it."""
    # The older of torch's two interfaces: the newer one makes readers of the older fail, and inductor is one of them.
    torch.set_float32_matmul_precision("high" if settings.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[object]:
    """Goes around forward passes and the loss; can be entered again and again."""
    if settings.precision not in AUTOCAST or device.type == "meta":  # torch has none for tensors without data
        return nullcontext()
    return torch.autocast(device.type, torch.float16 if settings.precision == "fp16" else torch.bfloat16)


def scaler(settings: Settings, optimizer: torch.optim.Optimizer, device: torch.device) -> GradScaler | None:
    """What scales the loss, where the precision asks for it.

    Raises:
        NotApplicable: the optimizer would have to ask the device, step by step, whether to go on.
    """
    if settings.precision != "fp16":
        return None
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        kind = settings.optimizer.kind
        raise NotApplicable(
            f'precision = "fp16" leaves out steps that overflow, which only fused optimizers do: not {kind}'
        )
    return GradScaler(device.type)
