"""BNP for any model: statistics that mirror ``.grad``, gradients preconditioned in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bnpbench.bnp.algorithms import update_running
from bnpbench.bnp.fused import Fused
from bnpbench.bnp.layer import Layer, Terms, without_autocast
from bnpbench.bnp.lean import LeanProduct, LeanState, Linear, found
from bnpbench.bnp.moments import MomentsPool
from bnpbench.bnp.pool import Pools
from bnpbench.bnp.running import Hyperparameters, Running, Section
from bnpbench.bnp.statistics import Batch, has_rows, local_statistics, shifted_sums, statistics_of_sums
from bnpbench.bnp.tracker import Tracker, refuse_gradients
from bnpbench.bnp.tracking import Predicate
from bnpbench.errors import StatisticsError


class BNP(Tracker[MomentsPool]):
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
        super().__init__(model, layers, process_group)
        self._running, self._lean = Running(self._layers), LeanState()
        self._track(
            Pools(
                self._layers,
                lambda layer, pools: MomentsPool(layer, pools, self._running),
                watched=count == "backward",
                title=self.title,
                lean=self._lean,
            )
        )
        for layer in self._layers:
            module = layer.module
            if lean is not None and isinstance(module, Linear) and module.bias is not None and lean(layer.name, module):
                module.product = LeanProduct(layer, self._lean, self._running, self._finish)
        self._fused = Fused(False if self.lean else fused, self._layers)

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

    def precondition_with(self, optimizer: torch.optim.Optimizer) -> bool:
        """:meth:`precondition`, and the update of the layers in the same function, where that is possible.

        It is in the fused form, on one device, with torch's SGD - on a CPU with Adam or AdamW, too - at learning rates
        that are tensors, from the second call on: the optimizer's own first step makes what it keeps. The layers'
        gradients are then used up: ``.grad`` is None afterwards, so that ``optimizer.step()`` passes over them. Between
        the forward pass and this call nothing may overwrite the inputs of dense layers.

        Args:
            optimizer: of the model's parameters.

        Returns:
            Whether nothing is left to do for ``optimizer.step()``, which else is to be called.

        Raises:
            StatisticsError: as of :meth:`precondition`.
        """
        fused = self._fused
        fused.optimizer, fused.updated = optimizer if len(self._running.sections) == 1 else None, False
        try:
            self.precondition()
        finally:
            fused.optimizer = None
        return fused.updated

    def _values(self) -> dict[str, Tensor]:
        """``<layer>.running_mean`` and ``<layer>.running_var``, each (n,)."""
        return self._running.state()

    def _place(self) -> None:
        self._running.place()
        self._fused.forget()

    def remove(self) -> None:
        """Take all hooks off the model and its optimizers."""
        super().remove()
        self._lean.forget(self._layers)
        for layer in self._layers:
            layer.module.__dict__.pop("product", None)

    def _leave(self, gone: Sequence[Layer]) -> None:
        super()._leave(gone)
        for layer in gone:
            layer.module.__dict__.pop("product", None)

    def _apply(self, chosen: Sequence[MomentsPool], active: list[MomentsPool]) -> None:
        for section in self._running.sections:
            with without_autocast(section.device.type):
                self._step(section, chosen, [pool for pool in active if pool.layer in section.members])
        self._lean.forget((*(pool.layer for pool in chosen), *self._gone))
        self._pools.defers = self._fused.joining

    def _step(self, section: Section, chosen: Sequence[MomentsPool], active: list[MomentsPool]) -> None:
        """Steps 1 to 5 of the layers on one device; ``active`` are those of the ``chosen`` that have gradients."""
        sums = None
        if self._is_distributed():  # every rank takes part for every layer, whatever it has seen itself
            sums = shifted_sums(section, [pool for pool in chosen if pool.layer in section.members])
            dist.all_reduce(sums, group=self.process_group or None)
        without_rows = [pool for pool in active if not pool.has_rows]
        if without_rows:
            without_rows = [pool for pool in without_rows if not has_rows(section, sums, pool.layer)]
            refuse_gradients(self.title, [pool.layer for pool in without_rows])
            active = [pool for pool in active if pool not in without_rows]
        if not active and sums is None:
            return
        layers = [pool.layer for pool in active]
        terms: Mapping[Layer, Terms | None] = self._lean.take(layers)
        if not terms:
            batch = self._batch(section, active, sums)
            taken = self._fused.precondition(section, layers, batch, self.options)
            if not taken:
                update_running(section.values, batch.whole, self.options.rho)
            if len(taken) < len(layers):
                layers = [layer for layer in layers if layer not in taken]
                terms = section.terms(batch.whole, batch.scales, self.options)
            else:
                layers = []
        for layer in layers:
            if layer not in self._lean.used:
                layer.precondition(found(layer, terms.get(layer)))
            elif layer.name in self._lean.plain:
                raise StatisticsError(
                    f"layer {layer.name!r} of the lean form was also called in a way that the form does not cover "
                    "(autocast, an input that is not (N, n), a compiled module): make BNP without lean= for it"
                )

    def _batch(self, section: Section, active: Sequence[MomentsPool], sums: Tensor | None) -> Batch:
        """Step 1: what is found of the rows of ``active``."""
        if sums is None and any(pool.has_compiled or pool.on_device for pool in active):
            sums = shifted_sums(section, active)
        return local_statistics(section, active) if sums is None else statistics_of_sums(section, sums)

    @torch.no_grad()
    def _finish(self, layer: Layer) -> dict[Layer, Terms | None]:
        """Fold in the rows of all layers on the device of ``layer`` during the backward pass, for the lean form."""
        self._follow()
        section = self._running.section_of(layer)
        with_rows = [pool for pool in self._pools.of(section.layers) if pool.has_rows]
        batch = self._batch(section, with_rows, sums=None)
        update_running(section.values, batch.whole, self.options.rho)
        terms = section.terms(batch.whole, batch.scales, self.options)
        return {layer: terms.get(layer) for layer in section.layers}
