"""BNP for any model: statistics that mirror ``.grad``, gradients preconditioned in place."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bnpbench.bnp.algorithms import update_running
from bnpbench.bnp.fused import Fused
from bnpbench.bnp.layer import Layer, Terms, autocasts
from bnpbench.bnp.lean import LeanProduct, LeanState, Linear, found
from bnpbench.bnp.pool import ForwardHook, Pool, Pools, has_nonzero, live_hook
from bnpbench.bnp.running import Hyperparameters, Running, Section
from bnpbench.bnp.statistics import Found, has_rows, local_statistics, shifted_sums, statistics_of_sums
from bnpbench.bnp.tracking import Fingerprint, Predicate, find_layers
from bnpbench.errors import StatisticsError


class BNP:
    """Batch Normalization Preconditioning (Algorithms 2 and 3) of the gradients of a model's Linear and Conv layers.

    The model's class, parameters and ``state_dict`` stay as they are; each tracked layer gets a forward hook. The order
    of a training step is: backward, unscale (GradScaler), :meth:`precondition`, clip, ``optimizer.step()``.

    **Statistics.** A call of a layer in training mode counts when a gradient reaches its output. Its rows join the
    layer's pool, and the pool mirrors ``.grad``: same examples, same lifetime. :meth:`precondition` folds the pool into
    the running values once, rewrites ``.grad`` and empties the pool; nothing else changes statistics. So rows of
    forward passes without a backward, of gradients dropped by ``zero_grad()`` (either kind), and of recomputation under
    checkpointing do not count; those of several calls, micro-batches and ranks are pooled, and N is their number.
    Inside a ``torch.compile``d module autograd nodes have no hooks: there the rows join at the forward pass, so that a
    compiled forward in training mode counts even if no backward follows before the next ``precondition()``. What
    ``torch.autograd.grad`` computes counts once ``.grad`` changes, for then it may have been put there: of several
    such calls only the last, and one to the inputs alone too if ``.grad`` is then unscaled or clipped in place. So do
    the rows of a step that GradScaler skips, where ``precondition()`` is called all the same. ``.grad.data.zero_()``
    goes unnoticed until the next backward pass, and what torch.func transforms compute is a gradient without rows.

    Where the paper is silent: all leading dimensions of a Linear's input are rows. With a single row in the pool,
    sigma_H^2 = (h - mu)^2 with mu the running mean before the step. A convolution's scale takes its output positions.
    Each group of a grouped convolution is a layer of its own. A layer without (or with a frozen) bias uses the
    inverse of diag(sigma~^2) + mu mu^T. A layer whose weight has no gradient is left alone.

    Statistics are kept in float32, or float64 where a weight is; under autocast and GradScaler too. They follow a model
    that is cast or moved. One whose layers are tied, pruned, parametrized or sharded needs a new BNP; at the next step
    that is an error. A layer that is taken out of the model or replaced is left alone from the next step on, with a
    warning; its running values stay as they are. A NaN or an infinity in a layer's input is not filtered: it stays in
    the layer's running values and makes its preconditioned gradient non-finite, so that the loss shows it in the next
    step.

    Nothing is read back to the host by a step, and what it changes is changed in place, so that a whole step - from the
    forward pass to ``precondition()`` - can be captured in a CUDA graph.

    Args:
        model: any module.
        rho: weight of the past in the running values, from 0 to 1.
        eps1: damping relative to the largest variance of the layer, at least 0.
        eps2: absolute damping, at least 0.
        statistics: precondition by the "running" values or by those of the "batch"; the running ones are kept anyway.
        scale: divide by q^2; False takes q^2 = 1.
        center: False takes mu = 0 in steps 4 and 5 (ablation).
        standardize: False takes sigma~^2 = 1 (ablation).
        layers: a predicate on (name, module); None tracks every layer that can be.
        process_group: ranks whose rows are pooled. None: the default group where torch.distributed is initialized.
            False: this process alone.
        count: when a call counts. "backward": when a gradient reaches its output, as said above. "forward": at once, as
            in a compiled module - the same thing, for two calls from autograd into Python less per layer and step, in a
            loop that takes every forward pass in training mode to its backward pass and to :meth:`precondition`.
        lean: a predicate on (name, module) for tracked layers of class :class:`bnpbench.bnp.lean.Linear` that have a
            bias: their gradients come preconditioned out of the backward pass, which costs less while the batch is
            small beside the layer's width. The statistics are then final at the first gradient of a backward pass, so
            it asks for count="forward", no forward pass between a backward pass and its step, and a single process. A
            penalty on such a weight that is part of the loss is not preconditioned.
        fused: whether steps 3 to 5 of all layers are one function that torch's compiler makes at the first step, which
            takes some seconds: each gradient is then read and written once, by one kernel a layer on a GPU. "auto": on
            CUDA, where Triton is installed and no layer is in the lean form; on a CPU many thousand steps have to pass
            before it has paid. It is the plain form up to rounding; that runs where the compiler fails, with a warning
            and the reason in ``unfused``.

    Attributes:
        layers: names of the tracked layers.
        skipped: names of the modules with parameters that are left alone, with the reason.
        lean: names of the tracked layers in the lean form.
        fused: names of the layers that the last step computed in the fused form.
        unfused: why others were not, where they were to be.
        options: rho, eps1 and the others that the arithmetic depends on.
        process_group: as given.

    Raises:
        ValueError: an option out of range; a layer that another BNP tracks.

    Warns:
        UserWarning: there is no layer to track; later, if weights keep changing without :meth:`precondition`, or where
            a tracked layer is no longer part of the model.

    Source: Lange, Helfrich, Ye, JMLR 23(72), 2022, Algorithms 2 and 3.
    """

    def __init__(
        self,
        model: nn.Module,
        rho: float = 0.99,
        eps1: float = 1e-2,
        eps2: float = 1e-4,
        statistics: Literal["running", "batch"] = "running",
        scale: bool = True,
        *,
        center: bool = True,
        standardize: bool = True,
        layers: Predicate | None = None,
        process_group: dist.ProcessGroup | Literal[False] | None = None,
        count: Literal["backward", "forward"] = "backward",
        lean: Predicate | None = None,
        fused: bool | Literal["auto"] = "auto",
    ) -> None:
        if statistics not in ("running", "batch"):
            raise ValueError(f"statistics must be 'running' or 'batch', not {statistics!r}")
        if count not in ("backward", "forward"):
            raise ValueError(f"count must be 'backward' or 'forward', not {count!r}")
        if not 0 <= rho <= 1 or eps1 < 0 or eps2 < 0:
            raise ValueError(f"BNP needs rho in [0, 1] and damping of at least 0, not {rho=}, {eps1=}, {eps2=}")
        if lean is not None and count != "forward":
            raise ValueError('the lean form needs its statistics in the backward pass: give count="forward" with it')
        if fused not in (True, False, "auto"):
            raise ValueError(f"fused must be True, False or 'auto', not {fused!r}")
        if fused is True and lean is not None:
            raise ValueError("layers are computed in the lean form or in the fused one: give lean= or fused=True")
        self.options = Hyperparameters(rho, eps1, eps2, statistics == "batch", scale, center, standardize)
        self.process_group = process_group
        self._model, self._wanted = model, layers
        tracked, self.skipped = find_layers(model, layers)
        for name, module in tracked.items():
            if live_hook(module):
                raise ValueError(
                    f"layer {name!r} is tracked by another BNP, and both would precondition it: remove() that one first"
                )
        if not tracked:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in self.skipped.items()) or "it has none"
            warnings.warn(f"BNP tracks no layer of this {type(model).__name__} ({reasons})", stacklevel=2)
        self._layers = [Layer(name, module) for name, module in tracked.items()]
        self._running, self._lean = Running(self._layers), LeanState()
        self._pools = Pools(self._layers, self._running, self._lean, watched=count == "backward")
        self._fingerprint, self._looked = Fingerprint(model, tracked.values()), False
        self._handles: dict[Layer, RemovableHandle] = {
            pool.layer: pool.layer.module.register_forward_hook(ForwardHook(pool, self), with_kwargs=True)
            for pool in self._pools.of(self._layers)
        }
        self._gone: list[Layer] = []
        self._attached: list[tuple[weakref.ref[torch.optim.Optimizer], RemovableHandle]] = []
        # Of each layer that one of several attached optimizers preconditioned: those that have yet to step on it.
        self._awaited: dict[Layer, weakref.WeakSet[torch.optim.Optimizer]] = {}
        for layer in self._layers:
            module = layer.module
            if lean is not None and isinstance(module, Linear) and module.bias is not None and lean(layer.name, module):
                module.product = LeanProduct(layer, self._lean, self._running, self._finish)
        self._fused = Fused(False if self.lean else fused, self._layers)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the tracked layers, in the model's order."""
        return tuple(layer.name for layer in self._layers)

    @property
    def lean(self) -> tuple[str, ...]:
        """Names of the tracked layers in the lean form."""
        return tuple(layer.name for layer in self._layers if "product" in layer.module.__dict__)

    @property
    def fused(self) -> tuple[str, ...]:
        """Names of the layers that the last step computed in the fused form; before the first, those that will be."""
        return tuple(layer.name for layer in self._fused.layers)

    @property
    def unfused(self) -> str | None:
        """Why there are others, although the fused form was to be taken; None where nothing kept it."""
        return self._fused.reason

    @property
    def form(self) -> str:
        """``plain``, ``lean`` or ``fused``; the last two with names of layers where others are in the plain one."""
        form, names = ("lean", self.lean) if self.lean else ("fused", self.fused)
        if not names:
            return "plain"
        return form if len(names) == len(self._layers) else f"{form}: {', '.join(names)}"

    def __repr__(self) -> str:
        options = {**vars(self.options), "count": "backward" if self._pools.watched else "forward"}
        options["statistics"] = "batch" if options.pop("batch") else "running"
        lines = [f"BNP({', '.join(f'{name}={value!r}' for name, value in options.items())})"]
        shown = [f"{name!r} (lean)" if name in self.lean else repr(name) for name in self.layers]
        lines.append(f"  preconditions {len(shown)}: {', '.join(shown) or '-'}")
        lines.append(f"  leaves alone {len(self.skipped)}: {', '.join(map(repr, self.skipped)) or '-'}")
        attached = len(self._owners())
        step = f"{attached} attached optimizer{' steps' if attached == 1 else 's step'}"
        lines.append(f"  when {step if attached else 'precondition() is called'}")
        return "\n".join(lines)

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
            optimizer: with weights or biases of some of the tracked layers among its parameters.

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
            raise ValueError(f"this {kind} owns neither weight nor bias of a layer that BNP tracks")

        def before_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if any(argument is not None for argument in (*args[1:2], kwargs.get("closure"))):
                raise ValueError("BNP cannot precondition gradients that a closure computes: call step() without one")
            self._follow()
            self._precondition_for(optimizer)

        handle = optimizer.register_step_pre_hook(before_step)
        self._attached.append((weakref.ref(optimizer), handle))
        return handle

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the running values: ``<layer>.running_mean`` and ``<layer>.running_var``, each (n,)."""
        return {key: value.clone() for key, value in self._running.state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy running values in place.

        Args:
            state: of :meth:`state_dict`, of a model with the same layers; on any device, in any precision.

        Raises:
            ValueError: other layers or sizes than this model's.
        """
        own = self._running.state()
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
        self._pools.empty()
        self._lean.forget(self._layers)
        for layer in self._layers:
            layer.module.__dict__.pop("product", None)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("BNP is bound to its model by hooks: make one for the copied model and load its state_dict()")

    @torch.no_grad()
    def _precondition(self, chosen: Sequence[Layer]) -> None:
        self._pools.begin_step()
        pools = self._pools.of(chosen)
        with_grad = [pool for pool in pools if pool.settle() is not None]
        if len(with_grad) < len(pools):
            for pool in pools:
                if pool.layer.weight.grad is None:
                    pool.empty()
        for section in self._running.sections:
            kind = section.device.type
            with torch.autocast(kind, enabled=False) if autocasts(kind) else nullcontext():
                self._step(section, pools, [pool for pool in with_grad if pool.layer in section.members])
        for pool in (*with_grad, *self._pools.of(self._gone)):
            pool.empty()
        self._lean.forget((*chosen, *self._gone))

    def _step(self, section: Section, chosen: Sequence[Pool], active: list[Pool]) -> None:
        """Steps 1 to 5 of the layers on one device; ``active`` are those of the ``chosen`` that have gradients."""
        sums = None
        if self._is_distributed():  # every rank takes part for every layer, whatever it has seen itself
            sums = shifted_sums(section, [pool for pool in chosen if pool.layer in section.members])
            dist.all_reduce(sums, group=self.process_group or None)
        without_rows = [pool for pool in active if not pool.has_rows]
        if without_rows:
            without_rows = [pool for pool in without_rows if not has_rows(section, sums, pool.layer)]
            _refuse_gradients([pool.layer for pool in without_rows])
            active = [pool for pool in active if pool not in without_rows]
        if not active and sums is None:
            return
        layers = [pool.layer for pool in active]
        terms: Mapping[Layer, Terms | None] = self._lean.take(layers)
        left: Sequence[Layer] = layers
        if not terms:
            statistics, scales = self._fold(section, active, sums)
            left = self._fused.precondition(section, layers, statistics, scales, self.options)
            if left:
                terms = section.terms(statistics, scales, self.options)
        for layer in left:
            if layer not in self._lean.used:
                layer.precondition(found(layer, terms.get(layer)))
            elif layer.name in self._lean.plain:
                raise StatisticsError(
                    f"layer {layer.name!r} of the lean form was also called in a way that the form does not cover "
                    "(autocast, an input that is not (N, n), a compiled module): make BNP without lean= for it"
                )

    def _fold(self, section: Section, active: Sequence[Pool], sums: Tensor | None) -> Found:
        """Step 2: take the rows of ``active`` into the running values; what was found of them."""
        if sums is None and any(pool.has_compiled or pool.on_device for pool in active):
            sums = shifted_sums(section, active)
        step = local_statistics(section, active) if sums is None else statistics_of_sums(section, sums)
        update_running(section.values, step[0], self.options.rho)
        return step

    @torch.no_grad()
    def _finish(self, layer: Layer) -> dict[Layer, Terms | None]:
        """Fold in the rows of all layers on the device of ``layer`` during the backward pass, for the lean form."""
        self._follow()
        section = self._running.section_of(layer)
        with_rows = [pool for pool in self._pools.of(section.layers) if pool.has_rows]
        terms = section.terms(*self._fold(section, with_rows, sums=None), self.options)
        return {layer: terms.get(layer) for layer in section.layers}

    def _follow(self) -> None:
        """Look at the model before the first step, and again when a layer or its weight is not what it was."""
        if not (self._looked and self._fingerprint.matches()):
            self._look()

    def _look(self) -> None:
        """Find the tracked layers in the model as it is now; lay the running values out anew if it was moved or cast.

        Raises:
            StatisticsError: a layer is of a kind that BNP leaves alone.
        """
        found, skipped = find_layers(self._model, self._wanted)
        names = {module: name for name, module in self._model.named_modules()}
        for layer in self._layers:
            name = names.get(layer.module)
            if name in skipped:
                raise StatisticsError(
                    f"layer {layer.name!r} is not what it was when BNP was made ({skipped[name]}): bnp.remove(), and "
                    "make BNP for the model as it is now"
                )
        gone = [layer for layer in self._layers if layer.module not in names]
        if gone:
            self._leave(gone)
            warnings.warn(
                f"layer {', '.join(repr(layer.name) for layer in gone)} is no longer part of the model, and BNP leaves "
                "alone what stands in its place: bnp.remove(), and make BNP for the model as it is now",
                stacklevel=4,
            )
        tracked, known = {layer.module for layer in self._layers}, {layer.name for layer in self._gone}
        untracked = [name for name, module in found.items() if module not in tracked and name not in known]
        if untracked:
            warnings.warn(
                f"BNP leaves {', '.join(map(repr, untracked))} alone, for it was made before: bnp.remove(), and make "
                "BNP for the model as it is now",
                stacklevel=4,
            )
        before, self._fingerprint = self._fingerprint.layout, Fingerprint(self._model, tracked)
        self._looked = True
        if self._fingerprint.layout != before:
            self._running.place()
            self._pools.follow()
            self._fused.forget()

    def _precondition_for(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step of an attached optimizer: the layers that it owns a part of, but for what another did."""
        layers = self._owned_by(optimizer)
        owners = self._owners()
        if len(owners) > 1:
            layers = [layer for layer in layers if not self._is_done(layer, optimizer)]
        owned = set().union(*map(_parameters_of, owners))
        for layer in layers:
            if layer.weight.grad is not None:
                self._demand_owners(layer, owned, type(optimizer).__name__)
        if layers:
            self._precondition(layers)
        theirs = [(one, set(self._owned_by(one))) for one in owners if one is not optimizer]
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

    def _demand_owners(self, layer: Layer, owned: set[int], kind: str) -> None:
        """Raises ValueError where the gradient of a weight or bias would be rewritten under an optimizer elsewhere."""
        parts = {"weight": layer.weight} | ({} if layer.bias_grad is None else {"bias": layer.module.bias})
        lacking = [name for name, parameter in parts.items() if id(parameter) not in owned]
        if lacking:
            (own,) = parts.keys() - lacking
            raise ValueError(
                f"this {kind} owns the {own} of layer {layer.name!r} but not its {lacking[0]}: attach() the optimizer "
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
            layer.module.__dict__.pop("product", None)
            self.skipped[layer.name] = "replaced after BNP was made"
        self._layers = [layer for layer in self._layers if layer not in gone]
        self._gone += gone

    def _owned_by(self, optimizer: torch.optim.Optimizer) -> list[Layer]:
        """The layers whose weight, or trained bias, is among the parameters of an optimizer."""
        owned = _parameters_of(optimizer)
        return [layer for layer in self._layers if id(layer.weight) in owned or id(layer.module.bias) in owned]

    def _is_distributed(self) -> bool:
        if self.process_group is False or not (dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_world_size(self.process_group) > 1


def _parameters_of(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _refuse_gradients(layers: Iterable[Layer]) -> None:
    """Layers with a gradient but no rows: an error, unless the gradient is zero (then nothing would change)."""
    refused = []
    for layer in layers:
        weight_grad = layer.weight.grad
        if weight_grad is not None and not weight_grad.is_meta and has_nonzero(weight_grad, layer.bias_grad):
            refused.append(repr(layer.name))
    if refused:
        others = f" (nor for {', '.join(refused[1:])})" if refused[1:] else ""
        raise StatisticsError(f"layer {refused[0]} has a gradient, but BNP saw no rows for it{others} {_CAUSES}")


_CAUSES = """since the last precondition(). One of these:
- precondition() ran twice for one backward pass: by hand and by attach(), or for a .grad that was not dropped since;
- the gradient is older than this BNP, or came after its remove();
- the call was in eval mode, or its rows were dropped when .grad was None for a moment;
- something uses the weight without calling the layer: torch.func, a functional form, a penalty on a weight whose layer
  was not called. Leave such layers out with layers=lambda name, module: ...;
- the layer that was called is a copy (deepcopy, replicate), and its gradient was put here;
- the model was compiled and run before BNP was made, or its hooks were not compiled in;
- with count="forward": a second step from one forward pass."""
