"""A cell's network with its method: built, initialized, preconditioned, penalized; and whether the method fits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.errors import NotApplicable
from bnpbench.fields import AUTOCAST
from bnpbench.layers import BatchRenorm, FilterResponseNorm, FourThings, RmsNorm, on_meta, weighted
from bnpbench.methods.base import Decay, Preconditioner
from bnpbench.registry import ships
from bnpbench.sites import Normalization, no_form_of_its_own, no_site, nothing_to_precondition, single_row, single_value
from bnpbench.suite import Settings, training_of

# Under autocast they would take statistics in half precision, or mix types in ways that not every kernel knows; torch's
# batch normalization keeps to float32 by itself. CUDA's autocast does the same to torch's two on its own.
_WIDENED = (
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    RmsNorm,
    nn.modules.instancenorm._InstanceNorm,
    BatchRenorm,
    FourThings,
    FilterResponseNorm,
)
_OVER_POSITIONS = (nn.modules.instancenorm._InstanceNorm, FilterResponseNorm)
_OVER_SETS = (
    nn.modules.batchnorm._NormBase,
    FourThings,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    RmsNorm,
    FilterResponseNorm,
)


def build_model(
    settings: Settings, input_shape: tuple[int, ...], classes: int, generator: torch.Generator
) -> nn.Module:
    """The network of ``settings`` with the method's normalization and initial weights.

    Args:
        settings: a cell's settings.
        input_shape: the shape of one example.
        classes: number of outputs.
        generator: a generator of the CPU, from which all weights are drawn; the same state gives
            every method the same weights. Weights that are kept are those that the network is built with under its
            seed. torch's own random state is left as it was.

    Raises:
        SuiteError: the network does not fit the examples.
        NotApplicable: the method does not fit a layer, or nothing would come of it.
    """
    network, keeps = settings.network, settings.initialization.keeps
    if settings.method.native and not network.of_others:
        raise NotApplicable(no_form_of_its_own(network.kind, settings.method.kind))
    wanted, sites = _normalization(settings), list[str]()
    if (make := wanted.maker) is not None:

        def noted(features: int, spatial_dims: int, site: str) -> nn.Module:
            sites.append(site)
            return make(features, spatial_dims, site)

        wanted = replace(wanted, maker=noted)
    with torch.random.fork_rng(devices=[]):
        if keeps:
            torch.manual_seed(generator.initial_seed())
        model = network.built(wanted, input_shape, classes)
    _demand_effect(settings, model, sites)
    settings.initialization.initialize(model, generator, whole=network.of_others)
    settings.method.finish(model, network.reads(input_shape))
    if settings.precision in AUTOCAST:
        for module in model.modules():
            if isinstance(module, _WIDENED) and module.weight is not None:
                module.register_forward_pre_hook(_widen)
    return model


def _normalization(settings: Settings) -> Normalization:
    """What the network puts at each place."""
    method = settings.method
    if not method.normalizes():
        return Normalization(native=method.native)
    layer = method.layer if settings.devices == 1 else method.synchronized_layer

    def make(features: int, spatial_dims: int, site: str) -> nn.Module:
        if (fault := method.undivided(site, features)) is not None:
            raise NotApplicable(fault.reason)
        return layer(features, spatial_dims, site)

    return Normalization(method.stands, make, conv_bias=method.preconditions(), input=method.normalizes_input)


def _demand_effect(settings: Settings, model: nn.Module, sites: list[str]) -> None:
    """Raises NotApplicable where nothing of the method has come into the model, which asked for ``sites``."""
    network, method = settings.network.kind, settings.method
    if method.normalizes() and not sites:
        raise NotApplicable(no_site(network, method.kind, method.preconditions()))
    if method.preconditions() and not list(weighted(model))[0 if getattr(method, "first_layer", True) else 1 :]:
        raise NotApplicable(nothing_to_precondition(network, method.kind))


def preconditioner(
    settings: Settings, model: nn.Module, input_shape: tuple[int, ...] | None = None
) -> Preconditioner | None:
    """What changes the gradients of ``model``, if the method of ``settings`` does.

    Args:
        settings: of the cell.
        model: of :func:`build_model`.
        input_shape: of one example as the network reads it; without it each layer is taken to be called once.
    """
    network = settings.network
    known = ships(type(network)) and not network.of_others  # each of its layers is called once
    training = training_of(settings, penalized=penalty(settings, model) is not None)
    return settings.method.preconditioner(model, training if known else replace(training, input_shape=input_shape))


def penalty(settings: Settings, model: nn.Module) -> Callable[[], Tensor] | None:
    """What the step adds to the loss before its backward pass (a 0-d tensor), or None.

    The method's own decays, and ``weight_decay`` with ``where = "l2"`` on all parameters. Each is half
    its value times a sum of squares, whose gradient is what torch's optimizers add for the same ``weight_decay``.
    """
    decays = settings.method.decays(model)
    if settings.l2:
        decays.append(Decay(settings.l2, list(model.parameters())))
    if not decays:
        return None
    return lambda: torch.stack([decay() for decay in decays]).sum()


def build_optimizer(
    settings: Settings, model: nn.Module, lr: Tensor | None = None, *, fused: bool = False
) -> torch.optim.Optimizer:
    """The optimizer of a cell.

    Args:
        settings: of the cell; weight decay is added here unless it stands in the loss (``where = "l2"``).
        model: whose parameters are trained.
        lr, fused: as of :meth:`bnpbench.optimizers.base.OptimizerPlugin.build`.

    Raises:
        NotApplicable: it does not run in the engine of ``settings``, or serves none of the parameters.
    """
    if (reason := settings.optimizer.untraced(settings.engine)) is not None:
        raise NotApplicable(reason)
    decay = settings.weight_decay.value - settings.l2
    return settings.optimizer.build(model, lr, weight_decay=decay, fused=fused)


def not_applicable(
    model: nn.Module, input_shape: tuple[int, ...], batch_size: int, divided: str = "", classes: int | None = None
) -> str | None:
    """Why ``model`` or its method has no meaning at ``batch_size``, or None.

    Batch statistics over a single row are the row itself, an example's own over a single value leave a constant. The
    reason names the layer. Found by a forward pass of a copy without data (on the ``meta`` device); ``model`` is left
    as it was.

    Args:
        model: a network of :func:`build_model`.
        input_shape: the shape of one example as the network reads it.
        batch_size: examples that share statistics in a training step.
        divided: how a batch was divided into these, as ``Settings.divided`` says it.
        classes: logits that an example has to have; None: not looked at.
    """
    copy = on_meta(model)

    def look(name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shape, where = inputs[0].shape, f"layer {name!r}"
        own = _own_values(module, shape)
        if own == 1:
            raise NotApplicable(single_value(where))
        if own is None:
            rows = module.smallest_set(shape) if isinstance(module, FourThings) else shape.numel() // shape[1]
            if rows == 1:
                raise NotApplicable(single_row(where + divided, shape[1], batch_size))

    for name, module in copy.named_modules():
        if isinstance(module, _OVER_SETS) and not isinstance(module, BatchRenorm):
            module.register_forward_pre_hook(partial(look, name))
    try:
        with torch.no_grad():
            output = copy(torch.empty(batch_size, *input_shape, device="meta"))
    except NotApplicable as error:
        return str(error)
    if classes is not None and (not isinstance(output, Tensor) or output.shape[:2] != (batch_size, classes)):
        found = " x ".join(map(str, output.shape)) if isinstance(output, Tensor) else f"a {type(output).__name__}"
        return f"of {batch_size} x {classes} logits, one for each class, the network gives {found}"
    return None


def _own_values(module: nn.Module, shape: torch.Size) -> int | None:
    """How many values of an example a layer normalizes together; None where it goes over the batch."""
    if isinstance(module, nn.GroupNorm):
        return shape[1:].numel() // module.num_groups
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return prod(module.normalized_shape)
    if isinstance(module, _OVER_POSITIONS):
        return shape[2:].numel()
    return shape[1:].numel() if isinstance(module, RmsNorm) else None


def _widen(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.to(module.weight.dtype) for x in inputs)
