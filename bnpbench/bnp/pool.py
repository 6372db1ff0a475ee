"""The rows whose gradients are in a layer's ``.grad``: what one BNP step takes its statistics from.

A call of a layer counts when a gradient reaches its output, and stays in the pool as long as that gradient stays in
``.grad``. The forward pass computes the statistics of a call; a hook on its autograd node notes that a gradient passed;
at the end of that backward pass, and again before the next one and before a step, ``weight.grad`` is compared with what
it was, so that the pool holds what ``.grad`` holds. Where a backward pass is itself differentiated (``create_graph``),
a gradient that comes back through it counts too: it reaches the weight without passing the output.
"""

from __future__ import annotations

import math
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils import checkpoint

from bnpbench.bnp.algorithms import batch_statistics, conv_scale, dense_scale, pool_statistics, widened
from bnpbench.errors import StatisticsError

if TYPE_CHECKING:
    from bnpbench.bnp.running import Running

# So often the weights may change on gradients that were not preconditioned before that is taken for a mistake: methods
# that step aside and back (sharpness-aware minimization) do it once or twice a step.
_RAW_STEPS = 3


_graph_task, _NO_TASK = torch._C._current_graph_task_id, -1
_strided = torch.strided


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
        watched: whether calls wait for their gradient; else they join the pool at the forward pass, unless that is run
            inside a backward pass.
    """

    def __init__(self, watched: bool) -> None:
        self.watched = watched
        self.passes: dict[int, dict[Layer, Arrivals]] = {}
        self.accumulates = False  # whether any backward pass has added to an earlier one's gradient
        self.warned = False  # of steps without preconditioning

    def note(self, call: Call) -> None:
        """A gradient reached the output of ``call``."""
        task = _graph_task()
        arrivals = self.passes.get(task)
        if arrivals is None:
            arrivals = self.passes[task] = {}
            Variable._execution_engine.queue_callback(partial(self.finish, task))
        of_layer = arrivals.get(call.layer)
        if of_layer is None:
            of_layer = arrivals[call.layer] = Arrivals(Gradient(call.layer.settle(accumulating=True)))
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

    def __call__(self, grad_outputs: tuple[Tensor | None]) -> tuple[Tensor] | None:
        """The hook on the autograd node of the call."""
        (grad,) = grad_outputs
        if grad is None:  # a Function below gave none
            return None
        self.layer.backward.note(self)
        if not torch.is_grad_enabled():
            return None
        passed: Tensor = _Passed.apply(grad, self.layer.weight, self)
        return (passed,)


class _Passed(torch.autograd.Function):
    """The gradient at the output of a call, in a backward pass that is differentiated: it notes what comes back to it.

    The weight is an argument so that every gradient that reaches the weight through here passes here.
    """

    @staticmethod
    def forward(ctx: Any, grad: Tensor, weight: Tensor, call: Call) -> Tensor:
        ctx.call = call
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.call.layer.backward.note(ctx.call)
        return grad, None, None


class Layer:
    """A tracked layer and its pool. ``running_mean`` and the like are views into one tensor of all layers.

    Attributes:
        running: the running values of all layers on its device.
        pool: calls whose gradients are in ``.grad``. A call's share is None, or a 0-d device tensor, 1 or 0, where
            only the device knows whether ``.grad`` was zeroed in place since.
        late: calls of a backward pass that left ``.grad`` alone: one to the inputs only, or one by
            ``torch.autograd.grad`` whose result is about to be put there.
        known: ``.grad`` when it was last known to hold the gradients of the whole pool.
        was_alive: whether that had a nonzero, on the device; None if nobody has looked.
        uncertain: whether any call has a share that only the device knows.
        preconditioned: whether ``.grad`` came preconditioned out of the backward pass, in the lean form.
        plain: whether a layer of the lean form was called in a way that is not lean, since the last step.
        version: the weight's, when the pool got its first call.
        raw_steps: how often the weight changed while calls were in the pool, since the last step.
        compiled_sums: shifted sums of calls inside compiled modules, ``[S1 | S2 | rows, examples, outputs]``.
        sums_version: of that tensor, when it was last zero.
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
        self.was_alive: Tensor | None = None
        self.scales: dict[tuple[int, int], float | Tensor] = {}
        self.uncertain = self.preconditioned = self.plain = False
        self.version = self.raw_steps = self.sums_version = 0

    @property
    def weight(self) -> Tensor:
        try:
            weight: Tensor = self.parameters["weight"]
        except KeyError:
            raise self._changed("weight") from None
        return weight

    @property
    def bias_grad(self) -> Tensor | None:
        try:
            bias: Tensor | None = self.parameters["bias"]
        except KeyError:
            raise self._changed("bias") from None
        return bias.grad if bias is not None and bias.requires_grad else None

    @property
    def has_rows(self) -> bool:
        return bool(self.pool) or self.compiled

    @property
    def compiled(self) -> bool:
        """Whether there are calls inside compiled modules. No flag, because checkpointed code may not set one."""
        return self.compiled_sums._version != self.sums_version

    def observe(self, inputs: Tensor, output: Tensor) -> None:
        """Forward pass: take the statistics of a call, and count it once a gradient reaches its output."""
        # Inside a backward pass checkpointed calls are recomputed. Those of non-reentrant checkpointing were counted
        # before and have a node that no gradient passes; those of the reentrant kind count now, when one does.
        waits = self.backward.watched or _graph_task() != _NO_TASK
        if self.running.terms is not None and not waits:
            self.running.begin_anew()
        rows, examples, outputs = self._counts(inputs, output)
        if rows == 0:
            return
        if rows == 1:
            call = Call(self, widened(inputs.detach()).reshape(-1).clone(), None, rows, examples, outputs)
        else:
            call = Call(self, *self._statistics(inputs), rows, examples, outputs)
        if not waits:
            self._join({call: None})
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
        add_unless_recomputed(self.compiled_sums, sums.to(self.compiled_sums.device))

    def deliver(self, arrivals: Arrivals) -> None:
        """End of a backward pass: take its calls into the pool if their gradients are in ``.grad``."""
        grad = self.weight.grad
        if arrivals.before.is_still(grad):
            self.late = arrivals
        else:
            if self.running.terms is not None:
                raise StatisticsError(
                    f"layer {self.name!r} was called inside the backward pass, by reentrant checkpointing, when the "
                    "statistics of this step were final already, for the lean form: use_reentrant=False, or no lean="
                )
            self._join(arrivals.calls)
            self.known = Gradient(grad)
            self.was_alive = has_nonzero(grad, self.bias_grad) if self.backward.accumulates else None

    def settle(self, accumulating: bool = False) -> Tensor | None:
        """Bring the pool in line with ``.grad``, which anybody may have changed since the last backward pass.

        Args:
            accumulating: a backward pass is about to add to ``.grad``. Then that is looked at even if it seems
                untouched, because ``.grad.data.zero_()`` leaves no other trace.

        Returns:
            ``weight.grad``.
        """
        weight = self.weight
        grad = weight.grad
        if self.pool and weight._version != self.version:
            self._notice_raw_step()
        if grad is None:
            self.pool.clear()
            self.late, self.uncertain = None, False
        if grad is None or not self.backward.watched:
            return grad
        if self.late is not None and not self.late.before.is_still(grad):
            self._join(self.late.calls)
            if not self.late.before.was(grad):
                self.known, self.was_alive = Gradient(grad), None
        self.late = None
        touched = not self.known.is_still(grad)  # unscaled, clipped, reduced or zeroed: only the device knows
        if self.pool and (touched or accumulating):
            self.backward.accumulates |= accumulating
            alive = has_nonzero(grad, self.bias_grad)
            if not touched and self.was_alive is not None:
                alive = alive | ~self.was_alive  # a gradient that came as zero was not dropped
            self.was_alive = alive
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
        self.late, self.uncertain, self.preconditioned, self.plain = None, False, False, False
        self.raw_steps = 0
        if self.compiled:
            self.compiled_sums.zero_()
            self.sums_version = self.compiled_sums._version

    def move_sums(self, device: torch.device) -> None:
        """Follow the model to another device, with the rows of a step under way."""
        if self.compiled_sums.device == device:
            return
        moved = torch.zeros_like(self.compiled_sums, device=device)
        if self.compiled and not self.compiled_sums.is_meta:
            self.sums_version = -1
            moved.copy_(self.compiled_sums)
        else:
            self.sums_version = moved._version
        self.compiled_sums = moved

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

    def _changed(self, name: str) -> StatisticsError:
        return StatisticsError(
            f"layer {self.name!r} has no {name} of its own any more: it was pruned or parametrized after BNP was made. "
            "bnp.remove(), and make BNP afterwards, which leaves such layers alone"
        )

    def _join(self, calls: dict[Call, None]) -> None:
        """Take calls into the pool."""
        version = self.weight._version
        if self.pool and version != self.version:
            self._notice_raw_step()
        self.version = version
        self.pool.update(calls)

    def _notice_raw_step(self) -> None:
        """The weight has changed while rows wait for ``precondition()``: warn if that goes on."""
        self.version = self.weight._version
        self.raw_steps += 1
        if self.raw_steps == _RAW_STEPS and not self.backward.warned:
            self.backward.warned = True
            warnings.warn(
                f"the weight of layer {self.name!r} changed {_RAW_STEPS} times on gradients that BNP did not "
                "precondition. Call bnp.precondition() before each optimizer.step(), or bnp.attach(optimizer) once; "
                "layers to be left alone are named with layers=lambda name, module: ...",
                stacklevel=2,
            )

    def _statistics(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if not self.spatial_dims:
            return batch_statistics(inputs)
        return batch_statistics(inputs if self._batched(inputs) else inputs.unsqueeze(0), channel_dim=1)

    def _counts(self, inputs: Tensor, output: Tensor) -> tuple[int, int, int]:
        """Rows of the input, examples, rows of the layer as a matrix."""
        if inputs.is_nested or inputs.layout is not _strided:
            kind = "nested" if inputs.is_nested else str(inputs.layout).removeprefix("torch.")
            raise StatisticsError(
                f"layer {self.name!r} was called with a {kind} tensor, of which BNP takes no statistics: give it a "
                "dense one, or leave the layer out with layers=lambda name, module: ..."
            )
        rows = inputs.numel() // self.channels
        if not self.spatial_dims:
            return rows, rows, rows
        examples = inputs.shape[0] if self._batched(inputs) else 1
        return rows, examples, examples * math.prod(output.shape[-self.spatial_dims :])

    def _batched(self, inputs: Tensor) -> bool:
        return inputs.dim() == self.spatial_dims + 2


@torch.library.custom_op("bnpbench::add_unless_recomputed", mutates_args={"sums"})
def add_unless_recomputed(sums: Tensor, more: Tensor) -> None:
    """``sums += more``, unless checkpointing runs a call again that has run before with gradients enabled.

    An operator of its own, because compiled code cannot tell. Reentrant checkpointing recomputes inside a backward pass
    too, but what ran before was without gradients and not counted.
    """
    if _graph_task() != _NO_TASK:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if hooks is not None and hooks[0].__module__ == checkpoint.__name__:
            return
    sums.add_(more)


@add_unless_recomputed.register_fake
def _(sums: Tensor, more: Tensor) -> None:
    return None


def has_nonzero(*tensors: Tensor | None) -> Tensor:
    """Whether anything differs from zero, a 0-d bool tensor on the device; NaN does."""
    extremes = [extreme for tensor in tensors if tensor is not None for extreme in torch.aminmax(tensor.detach())]
    return torch.stack([extreme != 0 for extreme in extremes]).any()
