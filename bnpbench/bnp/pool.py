"""The rows whose gradients are in a layer's ``.grad``: what one step of a preconditioner takes its statistics from.

A call of a layer counts when a gradient reaches its output, and stays in the pool as long as that gradient stays in
``.grad``. The forward pass computes the statistics of a call; a hook on its autograd node notes that a gradient passed.
At the end of that backward pass, before the next one and before a step, ``weight.grad`` is compared with what it was,
so that the pool holds the rows of what ``.grad`` holds. Where a backward pass is itself differentiated
(``create_graph``), a gradient that comes back through it counts too: it reaches the weight without passing the output.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils import checkpoint

from bnpbench.bnp.layer import Counts, Layer, input_of
from bnpbench.bnp.lean import LeanState
from bnpbench.errors import StatisticsError

# When the weights have changed so many times on gradients that were not preconditioned, that is taken for a mistake.
# Methods that step aside and back (sharpness-aware minimization) change them once or twice before a step.
_RAW_STEPS = 3

Kind = TypeVar("Kind", bound="Pool")

_graph_task, _NO_TASK = torch._C._current_graph_task_id, -1
_transform = torch._C._functorch.peek_interpreter_stack


class GradVersion:
    """Which tensor ``.grad`` was at some moment, and at which version; it does not keep that tensor alive."""

    __slots__ = ("reference", "version")

    def __init__(self, grad: Tensor | None) -> None:
        self.reference = None if grad is None else weakref.ref(grad)
        self.version = 0 if grad is None else grad._version

    def same_tensor(self, grad: Tensor | None) -> bool:
        """Whether it was the tensor ``grad``, whatever was written to that since."""
        return grad is None if self.reference is None else self.reference() is grad

    def unchanged(self, grad: Tensor | None) -> bool:
        """Whether it was ``grad``, and nothing was written to that since."""
        return self.same_tensor(grad) and (grad is None or self.version == grad._version)


class Call:
    """One call of a layer: what a subclass keeps of its rows, and how many they are.

    ``task`` is the backward pass that it was recomputed in, if any.
    """

    __slots__ = ("counts", "pool", "task")

    def __init__(self, pool: Pool, counts: Counts) -> None:
        self.pool, self.counts, self.task = pool, counts, _graph_task()

    def __call__(self, grad_outputs: tuple[Tensor | None]) -> tuple[Tensor] | None:
        """The hook on the autograd node of the call."""
        (grad,) = grad_outputs
        if grad is None or self.pool.pools.looking_back:  # a Function below gave none
            return None
        self.pool.pools.note(self, self.pool.of_gradient(grad))
        if not torch.is_grad_enabled():
            return None
        passed: Tensor = _Passed.apply(grad, self.pool.layer.weight, self)
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
        ctx.call.pool.pools.note(ctx.call)
        return grad, None, None


class Arrivals:
    """The calls of one layer that one backward pass went through, and the layer's ``.grad`` before that.

    With each call goes what :meth:`Pool.of_gradient` gave, if that is anything.
    """

    __slots__ = ("before", "calls")

    def __init__(self, before: GradVersion) -> None:
        self.before = before
        self.calls: dict[Call, Tensor | None] = {}


class Pool:
    """The rows of one layer since the last step. What is kept of them says a subclass.

    Args:
        layer: whose rows they are.
        pools: of all layers.
        width: length of the sums of calls inside compiled modules.

    Attributes:
        calls: those whose gradients are in ``.grad``, each with None; or with a 0-d device tensor, 1 or 0, where only
            the device knows whether ``.grad`` was zeroed in place since.
        on_device: whether the second holds for any call.
    """

    def __init__(self, layer: Layer, pools: Pools[Any], width: int) -> None:
        self.layer, self.pools = layer, pools
        self.calls: dict[Call, Tensor | None] = {}
        self.on_device = False
        # The calls of a backward pass that left .grad alone: one to the inputs only, or one by torch.autograd.grad
        # whose result is about to be put there.
        self._undelivered: Arrivals | None = None
        self._grad = GradVersion(None)  # when it was last known to hold the gradients of the whole pool
        self._had_nonzero: Tensor | None = None  # whether that had a nonzero, on the device; None: nobody has looked
        self._weight_version = 0  # when the pool got its first call
        self._raw_steps = 0  # how often the weight changed while calls were in the pool
        # Of calls inside compiled modules. Whether there are any tells the tensor's version: checkpointed code may not
        # set a flag.
        self._compiled_sums = layer.weight.new_zeros(width, dtype=torch.float64)
        self._compiled_version = 0  # of that tensor, when it was last zero

    @property
    def has_rows(self) -> bool:
        return bool(self.calls) or self.has_compiled

    @property
    def has_compiled(self) -> bool:
        """Whether there are calls inside compiled modules."""
        return self._compiled_sums._version != self._compiled_version

    def call_of(self, inputs: Tensor, counts: Counts) -> Call:
        """What is kept of a call with these inputs, which has rows."""
        raise NotImplementedError

    def of_gradient(self, grad: Tensor) -> Tensor | None:
        """What is kept of the gradient at the output of a call; nothing, by default."""
        return None

    def observe_compiled(self, inputs: Tensor, output: Tensor) -> Tensor | None:
        """As :meth:`observe`, inside a compiled module, where autograd nodes have no hooks: the rows join at once.

        Returns:
            What takes the place of the output, or None.
        """
        raise NotImplementedError

    def observe(self, inputs: Tensor, output: Tensor) -> None:
        """Forward pass: take the statistics of a call, and count it once a gradient reaches its output."""
        # Inside a backward pass checkpointed calls are recomputed. Those of non-reentrant checkpointing were counted
        # before and have a node that no gradient passes; those of the reentrant kind count now, when one does.
        waits = self.pools.watched or _graph_task() != _NO_TASK
        if self.pools.lean.terms and not waits:
            self.pools.begin_anew()
        counts = self.layer.counts(inputs, output)
        if counts.rows == 0:
            return
        # Not a hook on the tensor: modules that change the output in place (ReLU) would take that to another node.
        self.expect(self.call_of(inputs, counts), output if output._base is None else output._base, waits)

    def expect(self, call: Call, source: Tensor, waits: bool) -> None:
        """Count ``call`` once a gradient reaches ``source``, its output, or at once."""
        if not waits:
            self._join({call: None})
            return
        assert source.grad_fn is not None
        source.grad_fn.register_prehook(call)

    def deliver(self, arrivals: Arrivals) -> None:
        """End of a backward pass: take its calls into the pool if their gradients are in ``.grad``."""
        grad = self.layer.weight.grad
        if arrivals.before.unchanged(grad):
            self._undelivered = arrivals
            return
        if self.layer in self.pools.lean.terms:
            raise StatisticsError(
                f"layer {self.layer.name!r} was called inside the backward pass, by reentrant checkpointing, when the "
                "statistics of this step were final already, for the lean form: use_reentrant=False, or no lean="
            )
        self._join(arrivals.calls)
        self._grad = GradVersion(grad)
        self._had_nonzero = has_nonzero(grad, self.layer.bias_grad) if self.pools.accumulates else None

    def settle(self, accumulating: bool = False) -> Tensor | None:
        """Bring the pool in line with ``.grad``, which anybody may have changed since the last backward pass.

        Args:
            accumulating: a backward pass is about to add to ``.grad``. Then that is looked at even if it seems
                untouched, because ``.grad.data.zero_()`` leaves no other trace.

        Returns:
            ``weight.grad``.
        """
        weight = self.layer.weight
        grad = weight.grad
        if self.calls and weight._version != self._weight_version:
            self._notice_raw_step()
        if grad is None:
            self.calls.clear()
            self._undelivered, self.on_device = None, False
        if grad is None or not self.pools.watched:
            return grad
        if self._undelivered is not None and not self._undelivered.before.unchanged(grad):
            self._join(self._undelivered.calls)
            if not self._undelivered.before.same_tensor(grad):
                self._grad, self._had_nonzero = GradVersion(grad), None
        self._undelivered = None
        touched = not self._grad.unchanged(grad)  # unscaled, clipped, reduced or zeroed: only the device knows
        if self.calls and (touched or accumulating):
            if accumulating:
                self.pools.accumulates = True
            remains = has_nonzero(grad, self.layer.bias_grad)
            if not touched and self._had_nonzero is not None:
                remains = remains | ~self._had_nonzero  # a gradient that came as zero was not dropped
            self._had_nonzero = remains
            self.calls = {call: remains if kept is None else kept * remains for call, kept in self.calls.items()}
            self.on_device = True
            self._grad = GradVersion(grad)
        return grad

    def empty(self) -> None:
        """Forget all rows: their gradients were used."""
        self.calls.clear()
        self._undelivered, self.on_device = None, False
        self._raw_steps = 0
        if self.has_compiled:
            self._compiled_sums.zero_()
            self._compiled_version = self._compiled_sums._version

    def follow(self) -> None:
        """Move to the device of the weight, with the rows of a step under way."""
        sums, device = self._compiled_sums, self.layer.weight.device
        if sums.device == device:
            return
        moved = torch.zeros_like(sums, device=device)
        if self.has_compiled and not sums.is_meta:
            self._compiled_version = -1
            moved.copy_(sums)
        else:
            self._compiled_version = moved._version
        self._compiled_sums = moved

    def _join(self, calls: dict[Call, Tensor | None]) -> None:
        """Take calls into the pool."""
        version = self.layer.weight._version
        if self.calls and version != self._weight_version:
            self._notice_raw_step()
        self._weight_version = version
        self.calls.update(calls)

    def _notice_raw_step(self) -> None:
        """The weight has changed while rows wait for ``precondition()``: warn if that goes on."""
        self._weight_version = self.layer.weight._version
        self._raw_steps += 1
        if self._raw_steps == _RAW_STEPS and not self.pools.warned:
            self.pools.warned = True
            warnings.warn(
                f"the weight of layer {self.layer.name!r} changed {_RAW_STEPS} times on gradients that "
                f"{self.pools.title} did not precondition. Call precondition() before each optimizer.step(), or "
                "attach(optimizer) once; layers to be left alone are named with layers=lambda name, module: ...",
                stacklevel=2,
            )


class Pools(Generic[Kind]):
    """The pools of all layers, and the backward passes that are under way.

    Args:
        layers: in the model's order.
        make: the pool of a layer.
        lean: what the lean form has done since the last step.
        watched: whether calls wait for their gradient; else they join the pool at the forward pass, unless that is run
            inside a backward pass.
        title: of what preconditions, in messages.

    Attributes:
        defers: whether calls may keep their inputs until the step, for nobody overwrites them before it.
        accumulates: whether any backward pass has added to the gradient of an earlier one.
        warned: whether there was a warning of steps without preconditioning.
        looking_back: whether a backward pass is under way that is not the step's own.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        make: Callable[[Layer, Pools[Kind]], Kind],
        watched: bool,
        title: str,
        lean: LeanState | None = None,
    ) -> None:
        self.watched, self.title, self.lean = watched, title, lean or LeanState()
        self.defers = self.accumulates = self.warned = self.looking_back = False
        self._passes: dict[int, dict[Pool, Arrivals]] = {}  # several with reentrant checkpointing, one inside another
        self._of = {layer: make(layer, self) for layer in layers}

    def of(self, layers: Iterable[Layer]) -> list[Kind]:
        """The pools of ``layers``."""
        return [self._of[layer] for layer in layers]

    def note(self, call: Call, kept: Tensor | None = None) -> None:
        """A gradient reached the output of ``call``; ``kept`` is of it."""
        task = _graph_task()
        arrivals = self._passes.get(task)
        if arrivals is None:
            arrivals = self._passes[task] = {}
            Variable._execution_engine.queue_callback(partial(self._finish, task))
        of_layer = arrivals.get(call.pool)
        if of_layer is None:
            # What one backward pass recomputes piece by piece arrives by several of its own, one after the other.
            whole = call.task != _NO_TASK and all(known.task == call.task for known in call.pool.calls)
            of_layer = arrivals[call.pool] = Arrivals(GradVersion(call.pool.settle(accumulating=not whole)))
        of_layer.calls[call] = kept

    def begin_step(self) -> None:
        """Forget backward passes that never ended, because they raised."""
        self._passes.clear()

    def begin_anew(self) -> None:
        """A forward pass begins after the lean form made the statistics final: forget the rows of all layers.

        Raises:
            StatisticsError: no step has used the gradients that were preconditioned by them.
        """
        self.lean.begin_anew()
        self.empty()

    def empty(self) -> None:
        """Forget the rows of all layers."""
        for pool in self._of.values():
            pool.empty()

    def follow(self) -> None:
        """Move to the devices of the weights."""
        for pool in self._of.values():
            pool.follow()

    def _finish(self, task: int) -> None:
        """That backward pass has ended: every gradient it computed is in ``.grad``."""
        for pool, arrivals in self._passes.pop(task, {}).items():
            pool.deliver(arrivals)


class ForwardHook:
    """Shows each call in training mode to its layer's pool. A copy or pickle of the module carries :class:`Inert`.

    Args:
        pool: of the layer.
        owner: the tracker that made it; the hook does not keep that alive.
    """

    def __init__(self, pool: Pool, owner: object) -> None:
        self.pool, self.owner = pool, weakref.ref(owner)

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        if not (module.training and output.requires_grad):
            return None
        inputs = input_of(args, kwargs)
        if torch.compiler.is_dynamo_compiling():
            return self.pool.observe_compiled(inputs, output)
        if _transform() is not None:
            return None  # torch.func: what is differentiated are copies of the parameters, and those have no .grad
        if self.pool.layer.weight.requires_grad:
            self.pool.observe(inputs, output)
        return None

    def __deepcopy__(self, _memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[type[Inert], tuple[()]]:
        return Inert, ()


class Inert:
    """The hook of a copied or unpickled module: it does nothing."""

    def __call__(self, *_: object) -> None:
        return None


def live_hook(module: nn.Module) -> ForwardHook | None:
    """The hook of a tracker that is still in use, if the module has one; those of discarded ones are taken off."""
    for key, hook in list(module._forward_hooks.items()):
        if isinstance(hook, ForwardHook):
            if hook.owner() is not None:
                return hook
            del module._forward_hooks[key]
            module._forward_hooks_with_kwargs.pop(key, None)
    return None


def in_backward() -> bool:
    """Whether a backward pass is under way here, so that a call is one that checkpointing runs again."""
    return _graph_task() != _NO_TASK


def is_recomputed() -> bool:
    """Whether checkpointing runs a call again that has run before with gradients enabled."""
    if not in_backward():
        return False
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and hooks[0].__module__ == checkpoint.__name__


@torch.library.custom_op("bnpbench::add_unless_recomputed", mutates_args={"sums"})
def add_unless_recomputed(sums: Tensor, more: Tensor) -> None:
    """``sums += more``, unless checkpointing runs a call again that has run before with gradients enabled.

    An operator of its own, because compiled code cannot tell. Reentrant checkpointing recomputes inside a backward pass
    too, but what ran before was without gradients and not counted.
    """
    if not is_recomputed():
        sums.add_(more)


@add_unless_recomputed.register_fake
def _(sums: Tensor, more: Tensor) -> None:
    return None


def has_nonzero(*tensors: Tensor | None) -> Tensor:
    """Whether anything differs from zero, a 0-d bool tensor on the device; NaN does."""
    extremes = [extreme for tensor in tensors if tensor is not None for extreme in torch.aminmax(tensor.detach())]
    return torch.stack([extreme != 0 for extreme in extremes]).any()
