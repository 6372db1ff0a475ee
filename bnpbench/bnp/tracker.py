"""What follows the layers of a model and rewrites their gradients: hooks, pools, steps.

What it keeps of the rows, and what it makes of them, says a subclass.

**When a call counts.** A call of a layer in training mode counts when a gradient reaches its output. Its rows join the
layer's pool, and the pool mirrors ``.grad``: same examples, same lifetime. :meth:`Tracker.precondition` folds the pool
into the running values once, rewrites ``.grad`` and empties the pool; nothing else changes statistics.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Generic, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bnpbench.bnp.layer import Layer
from bnpbench.bnp.pool import ForwardHook, Kind, Pools, has_nonzero, live_hook
from bnpbench.bnp.tracking import Fingerprint, Predicate, find_layers
from bnpbench.errors import StatisticsError


class Ownership(NamedTuple):
    """Whose the layers are, of the optimizers attached.

    Attributes:
        seen: what it was found from: a reference to each optimizer and its parameters, and each layer's trained bias.
        layers: of each optimizer, by its id, those whose weight or trained bias is among its parameters.
        halves: layers of which they own one part, and the other one, which is trained, is not theirs: names of both.
    """

    seen: list[object]
    layers: dict[int, list[Layer]]
    halves: dict[Layer, tuple[str, str]]


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
        UserWarning: there is no layer to track; later, if weights keep changing without :meth:`precondition`, or where
            a tracked layer is no longer part of the model.
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
        self._handles: dict[Layer, RemovableHandle] = {}
        self._gone: list[Layer] = []
        self._attached: list[tuple[weakref.ref[torch.optim.Optimizer], RemovableHandle]] = []
        self._ownership: Ownership | None = None  # None: to be found anew
        # Of each layer that one of several attached optimizers preconditioned: those that have yet to step on it.
        self._awaited: dict[Layer, weakref.WeakSet[torch.optim.Optimizer]] = {}

    def _track(self, pools: Pools[Kind]) -> None:
        """Put the hooks on the layers; called once, when a subclass has made its pools."""
        self._pools = pools
        self._handles = {
            pool.layer: pool.layer.module.register_forward_hook(ForwardHook(pool, self), with_kwargs=True)
            for pool in pools.of(self._layers)
        }

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
        self._follow()
        self._precondition(self._layers)

    def attach(self, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Make ``optimizer.step()`` precondition first, the layers that it owns the weight or the bias of.

        Several optimizers of one model are attached one by one, and step in any order: a layer is folded and
        preconditioned once for what its backward passes gave, by the first step of an optimizer that owns a part of it,
        and the steps of its other owners take what that one left. So those that share a layer step on the same backward
        passes; with a GradScaler, unscale the gradients of all of them before the first steps.

        Gradients that are clipped before ``step()`` are then clipped raw; to clip preconditioned ones, call
        :meth:`precondition` instead.

        Args:
            optimizer: with weights or trained biases of some of the tracked layers among its parameters.

        Returns:
            A handle; its ``remove()`` detaches.

        Raises:
            ValueError: the optimizer owns no tracked layer, or is attached already; at ``step()``, if that is given a
                closure, which would compute new gradients after they were preconditioned, or if no attached optimizer
                owns the other part of a layer, weight or bias, that has a gradient.
            StatisticsError: a tracked layer is no longer the layer that it was.
        """
        kind = type(optimizer).__name__
        self._look()
        if optimizer in self._owners():
            raise ValueError(f"this {kind} is attached already: remove() the handle that attach() gave")
        if not self._owned_by(optimizer):
            raise ValueError(f"this {kind} owns neither weight nor trained bias of a layer that {self.title} tracks")

        def before_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if any(argument is not None for argument in (*args[1:2], kwargs.get("closure"))):
                raise ValueError(
                    f"{self.title} cannot precondition gradients that a closure computes: call step() without one"
                )
            self._follow()
            self._precondition_for(optimizer)

        handle = optimizer.register_step_pre_hook(before_step)
        self._attached.append((weakref.ref(optimizer), handle))
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
        for handle in (*self._handles.values(), *(handle for _, handle in self._attached)):
            handle.remove()
        self._handles.clear()
        self._attached.clear()
        self._awaited.clear()
        self._ownership = None
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
        self._pools.begin_step()
        pools = self._pools.of(chosen)
        with_grad = [pool for pool in pools if pool.settle() is not None]
        if len(with_grad) < len(pools):
            for pool in pools:
                if pool.layer.weight.grad is None:
                    pool.empty()
        self._apply(pools, with_grad)
        for pool in (*with_grad, *self._pools.of(self._gone)):
            pool.empty()

    def _follow(self) -> None:
        """Look at the model before the first step, and again when a layer or its weight is not what it was."""
        if not (self._looked and self._fingerprint.matches()):
            self._look()

    def _look(self) -> None:
        """Find the tracked layers in the model as it is now; lay the running values out anew if it was moved or cast.

        Raises:
            StatisticsError: a layer is of a kind that is left alone.
        """
        found, skipped = find_layers(self._model, self._wanted)
        names = {module: name for name, module in self._model.named_modules()}
        for layer in self._layers:
            name = names.get(layer.module)
            if name in skipped:
                raise StatisticsError(
                    f"layer {layer.name!r} is not what it was when {self.title} was made ({skipped[name]}): "
                    f"remove() it, and make {self.title} for the model as it is now"
                )
        gone = [layer for layer in self._layers if layer.module not in names]
        if gone:
            self._leave(gone)
            warnings.warn(
                f"layer {', '.join(repr(layer.name) for layer in gone)} is no longer part of the model, and "
                f"{self.title} leaves alone what stands in its place: remove() it, and make {self.title} for the model "
                "as it is now",
                stacklevel=4,
            )
        tracked, known = {layer.module for layer in self._layers}, {layer.name for layer in self._gone}
        untracked = [name for name, module in found.items() if module not in tracked and name not in known]
        if untracked:
            warnings.warn(
                f"{self.title} leaves {', '.join(map(repr, untracked))} alone, for it was made before: remove() it, "
                f"and make {self.title} for the model as it is now",
                stacklevel=4,
            )
        before, self._fingerprint = self._fingerprint.layout, Fingerprint(self._model, tracked)
        self._looked, self._ownership = True, None
        if self._fingerprint.layout != before:
            self._place()
            self._pools.follow()

    def _precondition_for(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step of an attached optimizer: the layers that it owns a part of, but for what another did."""
        owners = self._owners()
        _, layers_of, halves = self._owned(owners)
        layers = layers_of[id(optimizer)]
        if len(owners) > 1:
            layers = [layer for layer in layers if not self._is_done(layer, optimizer)]
        for layer in layers if halves else ():
            if layer in halves and layer.weight.grad is not None:
                self._demand_owner(layer, *halves[layer], type(optimizer).__name__)
        if layers:
            self._precondition(layers)
        theirs = [(one, set(layers_of[id(one)])) for one in owners if one is not optimizer]
        for layer in layers if theirs else ():
            self._awaited[layer] = weakref.WeakSet(one for one, parts in theirs if layer in parts)

    def _is_done(self, layer: Layer, optimizer: torch.optim.Optimizer) -> bool:
        """Whether another optimizer's step has preconditioned a layer for this one, and nothing has come since."""
        awaited = self._awaited.get(layer, ())
        if optimizer not in awaited:
            return False
        self._awaited[layer].discard(optimizer)
        (pool,) = self._pools.of([layer])
        pool.settle()
        return not pool.has_rows

    def _demand_owner(self, layer: Layer, own: str, other: str, kind: str) -> None:
        """Raises ValueError where the gradient of the other part would be rewritten under an optimizer elsewhere."""
        if other == "weight" or layer.bias_grad is not None:
            raise ValueError(
                f"this {kind} owns the {own} of layer {layer.name!r} but not its {other}: attach() the optimizer "
                "that owns it, too, or call precondition() before both instead"
            )

    def _owners(self) -> list[torch.optim.Optimizer]:
        """The attached optimizers."""
        pairs = ((reference(), handle) for reference, handle in self._attached)
        return [one for one, handle in pairs if one is not None and handle.id in one._optimizer_step_pre_hooks]

    def _leave(self, gone: Sequence[Layer]) -> None:
        """Track these layers no longer; their running values stay what they are, so that states fit as before."""
        for layer in gone:
            self._handles.pop(layer).remove()
            self.skipped[layer.name] = f"replaced after {self.title} was made"
        self._layers = [layer for layer in self._layers if layer not in gone]
        self._gone += gone

    def _owned(self, owners: Sequence[torch.optim.Optimizer]) -> Ownership:
        """Whose the layers are; found anew only where a parameter is another one, for every step asks."""
        seen: list[object] = [layer.trained_bias for layer in self._layers]  # of the weights the fingerprint tells
        for one in owners:
            seen.append(weakref.ref(one))  # the same object each time
            for group in one.param_groups:
                seen += group["params"]
        known = self._ownership
        if known is not None and len(known.seen) == len(seen) and all(map(is_, known.seen, seen)):
            return known
        owned, halves = set().union(*map(_parameters_of, owners)), {}
        for layer in self._layers:
            parts = {"weight": layer.weight, "bias": layer.trained_bias}
            own = [name for name, parameter in parts.items() if id(parameter) in owned]
            if len(own) == 1 and parts["bias"] is not None:
                (other,) = parts.keys() - own
                halves[layer] = own[0], other
        self._ownership = Ownership(seen, {id(one): self._owned_by(one) for one in owners}, halves)
        return self._ownership

    def _owned_by(self, optimizer: torch.optim.Optimizer) -> list[Layer]:
        """The layers whose weight, or trained bias, is among the parameters of an optimizer."""
        owned = _parameters_of(optimizer)
        return [layer for layer in self._layers if id(layer.weight) in owned or id(layer.trained_bias) in owned]

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
