"""What follows the layers of a model and rewrites their gradients: hooks, pools, steps.

What it keeps of the rows, and what it makes of them, says a subclass.

**When a call counts.** A call of a layer in training mode counts when a gradient reaches its output. Its rows join the
layer's pool, and the pool mirrors ``.grad``: same examples, same lifetime. :meth:`Tracker.precondition` folds the pool
into the running values once, rewrites ``.grad`` and empties the pool; nothing else changes statistics.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bnpbench.bnp.layer import Layer
from bnpbench.bnp.pool import ForwardHook, Kind, Pools, has_nonzero, live_hook
from bnpbench.bnp.tracking import Fingerprint, Predicate, find_layers
from bnpbench.errors import StatisticsError


class Tracker(Generic[Kind]):
    """Preconditions the gradients of a model's Linear and Conv layers by statistics of what passes through them.

    A subclass makes its pools in :meth:`_track`, gives its tensors in :meth:`_values`, and does a step in
    :meth:`_apply`. The model's class, parameters and ``state_dict`` stay as they are; each tracked layer gets a forward
    hook. The order of a training step is: backward, :meth:`precondition`, clip, ``optimizer.step()``.

    Args:
        model: any module.
        layers: a predicate on (name, module); None tracks every layer that can be.
        process_group: ranks whose rows are pooled. None: the default group where torch.distributed is initialized.
            False: this process alone.

    Attributes:
        skipped: names of the modules with parameters that are left alone, with the reason.
        process_group: as given.

    Raises:
        ValueError: another tracker has one of the layers.

    Warns:
        UserWarning: there is no layer to track; later, if weights keep changing without :meth:`precondition`.
    """

    title: str = "BNP"  # in messages

    _pools: Pools[Kind]

    def __init__(
        self,
        model: nn.Module,
        layers: Predicate | None,
        process_group: dist.ProcessGroup | Literal[False] | None,
    ) -> None:
        self.process_group = process_group
        self._model, self._wanted = model, layers
        tracked, self.skipped = find_layers(model, layers)
        for name, module in tracked.items():
            if hook := live_hook(module):
                raise ValueError(
                    f"layer {name!r} is tracked by another {hook.pool.pools.title}, and both would precondition it: "
                    "remove() that one first"
                )
        if not tracked:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in self.skipped.items()) or "it has none"
            warnings.warn(f"{self.title} tracks no layer of this {type(model).__name__} ({reasons})", stacklevel=3)
        self._layers = [Layer(name, module) for name, module in tracked.items()]
        self._fingerprint, self._looked = Fingerprint(model, tracked.values()), False
        self._handles: list[RemovableHandle] = []
        self._attached: list[RemovableHandle] = []

    def _track(self, pools: Pools[Kind]) -> None:
        """Put the hooks on the layers; called once, when a subclass has made its pools."""
        self._pools = pools
        self._handles += [
            pool.layer.module.register_forward_hook(ForwardHook(pool, self), with_kwargs=True)
            for pool in pools.of(self._layers)
        ]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the tracked layers, in the model's order."""
        return tuple(layer.name for layer in self._layers)

    def precondition(self) -> None:
        """Fold the rows of this step into the running values and rewrite ``.grad`` of the tracked layers in place.

        Raises:
            StatisticsError: a layer has a gradient but no rows: its hook never ran, or ``precondition()`` already did;
                or it is no longer the layer that it was.
        """
        self._precondition(self._layers)

    def attach(self, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Make every ``optimizer.step()`` precondition first, for the layers whose weight that optimizer owns.

        Gradients that are clipped before ``step()`` are then clipped raw; to clip preconditioned ones, call
        :meth:`precondition` instead.

        Args:
            optimizer: with the weights and biases of some of the tracked layers among its parameters.

        Returns:
            A handle; its ``remove()`` detaches.

        Raises:
            ValueError: the optimizer owns no tracked layer, or a weight without its bias, or is attached already; at
                ``step()``, if that is given a closure, which would compute new gradients after they were
                preconditioned.
            StatisticsError: a tracked layer is no longer the layer that it was.
        """
        kind = type(optimizer).__name__
        self._look()
        hooks = optimizer._optimizer_step_pre_hooks
        if any(handle.hooks_dict_ref() is hooks and handle.id in hooks for handle in self._attached):
            raise ValueError(f"this {kind} is attached already: remove() the handle that attach() gave")
        layers = self._owned_by(optimizer)
        if not layers:
            raise ValueError(f"this {kind} owns the weight of no layer that {self.title} tracks")
        owned = _parameters_of(optimizer)
        for layer in layers:
            bias = layer.module.bias
            if bias is not None and bias.requires_grad and id(bias) not in owned:
                raise ValueError(
                    f"this {kind} owns the weight of layer {layer.name!r} but not its bias, and whose step() came "
                    "first would decide what the other sees: call precondition() before both instead"
                )

        def before_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if any(argument is not None for argument in (*args[1:2], kwargs.get("closure"))):
                raise ValueError(
                    f"{self.title} cannot precondition gradients that a closure computes: call step() without one"
                )
            self._precondition(self._owned_by(optimizer))

        handle = optimizer.register_step_pre_hook(before_step)
        self._attached.append(handle)
        return handle

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the running values, by ``<layer>.<name>``."""
        return {key: value.clone() for key, value in self._values().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy running values in place.

        Args:
            state: of :meth:`state_dict`, of a model with the same layers; on any device, in any precision.

        Raises:
            ValueError: other layers or sizes than this model's.
        """
        own = self._values()
        if own.keys() != state.keys():
            missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
            raise ValueError(f"state of another model: missing {missing}, unexpected {unexpected}")
        for key, value in own.items():
            if value.shape != state[key].shape:
                raise ValueError(f"{key}: the state holds {tuple(state[key].shape)}, the layer {tuple(value.shape)}")
        for key, value in own.items():
            value.copy_(state[key])

    def remove(self) -> None:
        """Take all hooks off the model and its optimizers."""
        for handle in (*self._handles, *self._attached):
            handle.remove()
        self._handles.clear()
        self._attached.clear()
        self._pools.empty()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{self.title} is bound to its model by hooks: make one for the copied model and load its state_dict()"
        )

    # --- what a subclass does ------------------------------------------------------------------

    def _values(self) -> dict[str, Tensor]:
        """What it carries from step to step, not copied."""
        raise NotImplementedError

    def _place(self) -> None:
        """Weights were moved or cast: move and cast what it carries."""
        raise NotImplementedError

    def _apply(self, chosen: Sequence[Kind], active: list[Kind]) -> None:
        """A step on the layers of ``chosen``; ``active`` are those of them that have gradients."""
        raise NotImplementedError

    # --- what serves every one ------------------------------------------------------------------

    @torch.no_grad()
    def _precondition(self, chosen: Sequence[Layer]) -> None:
        self._follow()
        self._pools.begin_step()
        pools = self._pools.of(chosen)
        with_grad = [pool for pool in pools if pool.settle() is not None]
        if len(with_grad) < len(pools):
            for pool in pools:
                if pool.layer.weight.grad is None:
                    pool.empty()
        self._apply(pools, with_grad)
        for pool in with_grad:
            pool.empty()

    def _follow(self) -> None:
        """Look at the model before the first step, and again when a layer or its weight is not what it was."""
        if not (self._looked and self._fingerprint.matches()):
            self._look()

    def _look(self) -> None:
        """Find the tracked layers in the model as it is now; follow it if it was moved or cast.

        Raises:
            StatisticsError: a layer is gone, or of a kind that is left alone.
        """
        found, skipped = find_layers(self._model, self._wanted)
        modules = set(found.values())
        for layer in self._layers:
            if layer.module not in modules:
                names = [name for name, module in self._model.named_modules() if module is layer.module]
                reason = skipped[names[0]] if names else "it is no longer part of the model"
                raise StatisticsError(
                    f"layer {layer.name!r} is not what it was when {self.title} was made ({reason}): remove() it, and "
                    f"make {self.title} for the model as it is now"
                )
        tracked = {layer.module for layer in self._layers}
        untracked = [name for name, module in found.items() if module not in tracked]
        if untracked:
            warnings.warn(
                f"{self.title} leaves {', '.join(map(repr, untracked))} alone, for it was made before: remove() it, "
                f"and make {self.title} for the model as it is now",
                stacklevel=4,
            )
        before, self._fingerprint = self._fingerprint.layout, Fingerprint(self._model, tracked)
        self._looked = True
        if self._fingerprint.layout != before:
            self._place()
            self._pools.follow()

    def _owned_by(self, optimizer: torch.optim.Optimizer) -> list[Layer]:
        owned = _parameters_of(optimizer)
        return [layer for layer in self._layers if id(layer.weight) in owned]

    def _is_distributed(self) -> bool:
        if self.process_group is False or not (dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_world_size(self.process_group) > 1


def _parameters_of(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def refuse_gradients(title: str, layers: Iterable[Layer]) -> None:
    """Layers with a gradient but no rows: an error, unless the gradient is zero (then nothing would change)."""
    refused = []
    for layer in layers:
        weight_grad = layer.weight.grad
        if weight_grad is not None and not weight_grad.is_meta and has_nonzero(weight_grad, layer.bias_grad):
            refused.append(repr(layer.name))
    if refused:
        others = f" (nor for {', '.join(refused[1:])})" if refused[1:] else ""
        raise StatisticsError(f"layer {refused[0]} has a gradient, but {title} saw no rows for it{others} {_CAUSES}")


_CAUSES = """since the last precondition(). One of these:
- precondition() ran twice for one backward pass: by hand and by attach(), or for a .grad that was not dropped since;
- the gradient is older than this preconditioner, or came after its remove();
- the call was in eval mode, or its rows were dropped when .grad was None for a moment;
- something uses the weight without calling the layer: torch.func, a functional form, a penalty on a weight whose layer
  was not called. Leave such layers out with layers=lambda name, module: ...;
- the layer that was called is a copy (deepcopy, replicate), and its gradient was put here;
- the model was compiled and run before this preconditioner was made, or its hooks were not compiled in;
- with count="forward": a second step from one forward pass."""
