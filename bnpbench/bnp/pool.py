"""The rows whose gradients are in a layer's ``.grad``: what one BNP step takes its statistics from.

A call of a layer counts when a gradient reaches its output, and stays in the pool as long as that gradient stays in
``.grad``. The forward pass computes the statistics of a call; a hook on its autograd node notes that a gradient passed;
at the end of that backward pass, and again before the next one and before a step, ``weight.grad`` is compared with what
it was, so that the pool holds what ``.grad`` holds.
"""

from __future__ import annotations

import math
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from bnpbench.bnp.algorithms import batch_statistics, conv_scale, dense_scale, pool_statistics, widened

if TYPE_CHECKING:
    from bnpbench.bnp.running import Running


class Gradient:
    """A ``.grad`` as it was at some moment, without keeping it alive."""

    __slots__ = ("reference", "version")

    def __init__(self, grad: Tensor | None) -> None:
        self.reference = None if grad is None else weakref.ref(grad)
        self.version = 0 if grad is None else grad._version

    def was(self, grad: Tensor | None) -> bool:
        """Whether it is the tensor ``grad``, whatever was written to that since."""
        return grad is None if self.reference is None else self.reference() is grad

    def is_still(self, grad: Tensor | None) -> bool:
        """Whether it is ``grad``, not written to since."""
        return self.was(grad) and (grad is None or self.version == grad._version)


class Arrivals:
    """The calls of one layer that one backward pass went through, and the layer's ``.grad`` before that."""

    __slots__ = ("before", "calls")

    def __init__(self, before: Gradient) -> None:
        self.before = before
        self.calls: dict[Call, None] = {}


class Backward:
    """The backward passes under way; with reentrant checkpointing one runs inside another.

    Args:
        watched: whether calls wait for their gradient; else they join the pool at the forward pass.
    """

    def __init__(self, watched: bool) -> None:
        self.watched = watched
        self.passes: dict[int, dict[Layer, Arrivals]] = {}

    def note(self, call: Call) -> None:
        """A gradient reached the output of ``call``."""
        task = torch._C._current_graph_task_id()
        arrivals = self.passes.get(task)
        if arrivals is None:
            arrivals = self.passes[task] = {}
            Variable._execution_engine.queue_callback(partial(self.finish, task))
        of_layer = arrivals.get(call.layer)
        if of_layer is None:
            of_layer = arrivals[call.layer] = Arrivals(Gradient(call.layer.settle()))
        of_layer.calls[call] = None

    def finish(self, task: int) -> None:
        """That backward pass has ended: every gradient it computed is in ``.grad``."""
        for layer, arrivals in self.passes.pop(task, {}).items():
            layer.deliver(arrivals)


class Call:
    """One call of a layer: statistics of its rows. ``variance`` is None where there is a single row."""

    __slots__ = ("examples", "layer", "mean", "outputs", "rows", "variance")

    def __init__(
        self, layer: Layer, mean: Tensor, variance: Tensor | None, rows: int, examples: int, outputs: int
    ) -> None:
        self.layer, self.mean, self.variance = layer, mean, variance
        self.rows, self.examples, self.outputs = rows, examples, outputs  # outputs: rows of the layer as a matrix

    def __call__(self, _grad_outputs: object) -> None:
        self.layer.backward.note(self)


class Layer:
    """A tracked layer and its pool. ``running_mean`` and the like are views into one tensor of all layers.

    Attributes:
        running: the running values of all layers on its device.
        pool: calls whose gradients are in ``.grad``. A call's share is None, or a 0-d device tensor, 1 or 0, where
            only the device knows whether ``.grad`` was zeroed in place since.
        late: calls of a backward pass that left ``.grad`` alone: one to the inputs only, or one by
            ``torch.autograd.grad`` whose result is about to be put there.
        known: ``.grad`` when it was last known to hold the gradients of the whole pool.
        uncertain: whether any call has a share that only the device knows.
        preconditioned: whether ``.grad`` came preconditioned out of the backward pass, in the lean form.
        compiled_sums: shifted sums of calls inside compiled modules, ``[S1 | S2 | rows, examples, outputs]``.
    """

    running: Running
    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, name: str, module: nn.Module, backward: Backward) -> None:
        self.name, self.module, self.backward = name, module, backward
        self.parameters: dict[str, Any] = module._parameters  # by-passes Module.__getattr__, once per call and step
        self.spatial_dims = 0
        self.groups = self.taps = 1
        if isinstance(module, nn.Linear):
            self.channels = module.in_features
        else:
            assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
            self.spatial_dims = len(module.kernel_size)
            self.channels, self.groups, self.taps = module.in_channels, module.groups, math.prod(module.kernel_size)
        self.inputs = self.channels // self.groups * self.taps
        self.compiled_sums = self.weight.new_zeros(2 * self.channels + 3, dtype=torch.float64)
        self.pool: dict[Call, Tensor | None] = {}
        self.late: Arrivals | None = None
        self.known = Gradient(None)
        self.scales: dict[tuple[int, int], float | Tensor] = {}
        self.compiled = self.uncertain = self.preconditioned = False

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.parameters["weight"]
        return weight

    @property
    def bias_grad(self) -> Tensor | None:
        bias: Tensor | None = self.parameters["bias"]
        return bias.grad if bias is not None and bias.requires_grad else None

    @property
    def has_rows(self) -> bool:
        return self.compiled or bool(self.pool)

    def observe(self, inputs: Tensor, output: Tensor) -> None:
        """Forward pass: take the statistics of a call, and count it once a gradient reaches its output."""
        if self.running.terms is not None:  # of a lean backward pass whose gradients were dropped
            self.running.forget()
        rows, examples, outputs = self._counts(inputs, output)
        if rows == 0:
            return
        if rows == 1:
            call = Call(self, widened(inputs.detach()).reshape(-1).clone(), None, rows, examples, outputs)
        else:
            call = Call(self, *self._statistics(inputs), rows, examples, outputs)
        if not self.backward.watched:
            self.pool[call] = None
            return
        # Not a hook on the tensor: modules that change the output in place (ReLU) would take that to another node.
        source = output if output._base is None else output._base
        assert source.grad_fn is not None
        source.grad_fn.register_prehook(call)

    def observe_compiled(self, inputs: Tensor, output: Tensor) -> None:
        """The same inside a compiled module, where autograd nodes have no hooks: the rows join at once."""
        rows, examples, outputs = self._counts(inputs, output)
        if rows == 0:
            return
        mean, variance = self._statistics(inputs)
        shift = mean.double() - self.running_mean.to(mean.device, torch.float64)  # elsewhere, if the model just moved
        counts = [shift.new_full((1,), count) for count in (rows, examples, outputs)]
        sums = torch.cat([shift * rows, (variance.double() + shift.square()) * rows, *counts])
        self.compiled_sums.add_(sums.to(self.compiled_sums.device))
        self.compiled = True

    def deliver(self, arrivals: Arrivals) -> None:
        """End of a backward pass: take its calls into the pool if their gradients are in ``.grad``."""
        grad = self.weight.grad
        if arrivals.before.is_still(grad):
            self.late = arrivals
        else:
            self.pool.update(arrivals.calls)
            self.known = Gradient(grad)

    def settle(self) -> Tensor | None:
        """Bring the pool in line with ``.grad``, which anybody may have changed since the last backward pass.

        Returns:
            ``weight.grad``.
        """
        grad = self.weight.grad
        if grad is None:
            self.pool.clear()
            self.late, self.uncertain = None, False
        if grad is None or not self.backward.watched:
            return grad
        if self.late is not None and not self.late.before.is_still(grad):
            self.pool.update(self.late.calls)
            if not self.late.before.was(grad):
                self.known = Gradient(grad)
        self.late = None
        if self.pool and not self.known.is_still(grad):  # unscaled, clipped, reduced or zeroed: only the device knows
            alive = has_nonzero(grad, self.bias_grad)
            self.pool = {call: alive if share is None else share * alive for call, share in self.pool.items()}
            self.uncertain = True
            self.known = Gradient(grad)
        return grad

    def pooled(self) -> Call:
        """All calls of the pool as one, where none has a share that only the device knows."""
        if len(self.pool) == 1:
            return next(iter(self.pool))
        calls = list(self.pool)
        rows = [call.rows for call in calls]
        means = torch.stack([call.mean for call in calls])
        variances = torch.stack([torch.zeros_like(c.mean) if c.variance is None else c.variance for c in calls])
        mean, variance = pool_statistics(means, variances, rows)
        examples, outputs = sum(call.examples for call in calls), sum(call.outputs for call in calls)
        return Call(self, mean, variance, sum(rows), examples, outputs)

    def resting(self) -> Call:
        """The running values, for a step that the layer has no part in."""
        return Call(self, self.running_mean, self.running_variance, 0, 0, 0)

    def add_shifted_sums(self, first: Tensor, second: Tensor, counts: Tensor) -> None:
        """Add float64 sums of the pool, shifted by the running mean, to ``first``, ``second`` (n,), ``counts`` (3,)."""
        for call, share in self.pool.items():
            shift = call.mean.double() - self.running_mean.double()
            square = shift.square() if call.variance is None else shift.square() + call.variance
            one = torch.ones_like(counts[0]) if share is None else share.to(counts.dtype)
            first.add_(shift * (one * call.rows))
            second.add_(square * (one * call.rows))
            for total, count in zip(counts.unbind(), (call.rows, call.examples, call.outputs), strict=True):
                total.add_(one * count)
        if self.compiled:
            n = self.channels
            first.add_(self.compiled_sums[:n])
            second.add_(self.compiled_sums[n : 2 * n])
            counts.add_(self.compiled_sums[2 * n :])

    def empty(self) -> None:
        """Forget all rows: their gradients were used."""
        self.pool.clear()
        self.late, self.uncertain, self.preconditioned = None, False, False
        if self.compiled:
            self.compiled_sums.zero_()
            self.compiled = False

    def scale_of(self, call: Call) -> float | Tensor:
        """q^2 of the pooled rows."""
        counts = call.examples, call.outputs
        if counts not in self.scales:
            if self.spatial_dims:
                scale = conv_scale(self.inputs, call.examples, call.outputs / call.examples)
            else:
                scale = dense_scale(self.channels, call.rows)
            self.scales = {counts: scale}  # of the last step: most have the same counts
        return self.scales[counts]

    def _statistics(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if not self.spatial_dims:
            return batch_statistics(inputs)
        return batch_statistics(inputs if self._batched(inputs) else inputs.unsqueeze(0), channel_dim=1)

    def _counts(self, inputs: Tensor, output: Tensor) -> tuple[int, int, int]:
        """Rows of the input, examples, rows of the layer as a matrix."""
        rows = inputs.numel() // self.channels
        if not self.spatial_dims:
            return rows, rows, rows
        examples = inputs.shape[0] if self._batched(inputs) else 1
        return rows, examples, examples * math.prod(output.shape[-self.spatial_dims :])

    def _batched(self, inputs: Tensor) -> bool:
        return inputs.dim() == self.spatial_dims + 2


def has_nonzero(*tensors: Tensor | None) -> Tensor:
    """Whether anything differs from zero, a 0-d bool tensor on the device; NaN does."""
    extremes = [extreme for tensor in tensors if tensor is not None for extreme in torch.aminmax(tensor)]
    return torch.stack([extreme != 0 for extreme in extremes]).any()
