"""The table of methods: which normalization goes where, and whether the gradient is preconditioned.

Adding a method is one entry of ``METHODS`` (and its options in ``bnpbench.suite.vocabulary``).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.costs import bnp_flops, lean_bnp_flops
from bnpbench.errors import NotApplicable
from bnpbench.layers import AveragedBatchNorm, BatchRenorm, FourThings, Normalization, SynchronizedBatchNorm
from bnpbench.networks import build
from bnpbench.networks.initialization import WEIGHTED, initialize
from bnpbench.suite.settings import Settings
from bnpbench.suite.sites import no_site, nothing_to_precondition, single_row, single_value
from bnpbench.suite.vocabulary import BatchNorm, BnpGroupNorm, GroupNorm, LayerNorm, MethodOptions, Renorm
from bnpbench.suite.vocabulary import FourThings as FourThingsOptions

LEAN_CALLS = 3_000_000
"""Operations that would take as long as what the lean form costs beside its own: calls from autograd into Python."""

# Under autocast they would take statistics in bf16, or mix types in ways that not every kernel knows; torch's batch
# normalization keeps to float32 by itself. CUDA's autocast does the same to torch's two on its own.
_WIDENED = (nn.GroupNorm, nn.LayerNorm, BatchRenorm, FourThings)
_OVER_SETS = (nn.modules.batchnorm._BatchNorm, FourThings, nn.GroupNorm, nn.LayerNorm)
_BATCH_NORMS: tuple[type[nn.Module], ...] = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class Pull:
    """A decay: half of ``value`` times the sum of the squared distances of ``parameters`` from ``center``."""

    value: float
    parameters: list[nn.Parameter]
    center: float = 0.0

    def __call__(self) -> Tensor:
        away = torch.cat([parameter.flatten() for parameter in self.parameters]) - self.center
        return 0.5 * self.value * away.square().sum()


def _no_pulls(options: Any, model: nn.Module) -> list[Pull]:
    return []


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes:
        layer: makes the normalization from the method's options, the number of features, the
            number of dimensions behind them and the name of the layer it follows; None: no normalization.
        position: where it stands; None: as the options' ``position`` says.
        synchronized: takes the place of ``layer`` on several devices, unless the options have ``sync = false``.
        preconditioned: whether BNP preconditions the gradient. Every preconditioned layer has a bias.
        pulls: the decays that are part of the method, from its options and the model.
    """

    layer: Callable[[Any, int, int, str], nn.Module] | None = None
    position: Literal["post", "pre"] | None = None
    synchronized: Callable[[Any, int, int, str], nn.Module] | None = None
    preconditioned: bool = False
    pulls: Callable[[Any, nn.Module], list[Pull]] = _no_pulls


def normalization(options: MethodOptions, devices: int = 1) -> Normalization:
    """What a network puts at each place for the method of ``options``, on so many devices."""
    method = METHODS[options.kind]
    layer = method.synchronized if devices > 1 and getattr(options, "sync", False) else method.layer
    if layer is None:
        return Normalization()

    def make(features: int, spatial_dims: int, site: str) -> nn.Module:
        if (fault := options.undivided(site, features)) is not None:
            raise NotApplicable(fault.reason)
        return layer(options, features, spatial_dims, site)

    return Normalization(
        position=method.position or getattr(options, "position", "post"),
        maker=make,
        conv_bias=method.preconditioned,
        input=getattr(options, "input", False),
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
            every method the same weights. torch's own random state is left as it was.

    Raises:
        SuiteError: the network does not fit the examples.
        NotApplicable: the method does not fit a layer, or nothing would come of it.
    """
    wanted, sites = normalization(settings.method, settings.devices), list[str]()
    if (make := wanted.maker) is not None:

        def noted(features: int, spatial_dims: int, site: str) -> nn.Module:
            sites.append(site)
            return make(features, spatial_dims, site)

        wanted = replace(wanted, maker=noted)
    with torch.random.fork_rng(devices=[]):
        model = build(settings.network, wanted, input_shape, classes)
    _demand_effect(settings, model, sites)
    initialize(model, settings.initialization, generator)
    if settings.precision == "bf16":
        for module in model.modules():
            if isinstance(module, _WIDENED):
                module.register_forward_pre_hook(_widen)
    return model


def _demand_effect(settings: Settings, model: nn.Module, sites: list[str]) -> None:
    """Raises NotApplicable where nothing of the method has come into the model, which asked for ``sites``."""
    network, options = settings.network.kind, settings.method
    method = METHODS[options.kind]
    if method.layer is not None and not sites:
        raise NotApplicable(no_site(network, options.kind, method.preconditioned))
    weighted = [module for module in model.modules() if isinstance(module, WEIGHTED)]
    if method.preconditioned and not weighted[0 if getattr(options, "first_layer", True) else 1 :]:
        raise NotApplicable(nothing_to_precondition(network, options.kind))


def preconditioner(settings: Settings, model: nn.Module) -> BNP | None:
    """The BNP of ``settings.method`` on ``model``, or None if the method does not precondition."""
    options: Any = settings.method
    if not METHODS[options.kind].preconditioned:
        return None
    first = next(name for name, module in model.named_modules() if isinstance(module, WEIGHTED))
    # A penalty's gradient by-passes the lean form, and under autocast the plain one would run.
    plain = options.form == "plain" or settings.devices > 1 or settings.precision == "bf16" or penalty(settings, model)
    return BNP(
        model,
        rho=options.rho,
        eps1=options.eps1,
        eps2=options.eps2,
        statistics=options.statistics,
        scale=options.scale,
        center=options.center,
        standardize=options.standardize,
        count="forward",  # the training step takes every forward pass to a backward one
        layers=None if options.first_layer else (lambda name, module: name != first),
        lean=None if plain else partial(_costs_less_lean, settings),
    )


def _costs_less_lean(settings: Settings, name: str, module: nn.Module) -> bool:
    """Whether the lean form of BNP is the cheaper one on a dense layer."""
    assert isinstance(module, nn.Linear)
    shape = module.in_features, module.out_features, settings.batch_size
    calls = LEAN_CALLS if settings.engine == "eager" else 0
    return lean_bnp_flops(*shape) + calls < bnp_flops(*shape)


def penalty(settings: Settings, model: nn.Module) -> Callable[[], Tensor] | None:
    """What the step adds to the loss before its backward pass (a 0-d tensor), or None.

    The method's own decay, and ``weight_decay`` with ``where = "l2"`` on all parameters. Each is half
    its value times a sum of squares, whose gradient is what torch's optimizers add for the same ``weight_decay``.
    """
    pulls = METHODS[settings.method.kind].pulls(settings.method, model)
    if settings.weight_decay.where == "l2" and settings.weight_decay.value:
        pulls.append(Pull(settings.weight_decay.value, list(model.parameters())))
    if not pulls:
        return None
    return lambda: torch.stack([pull() for pull in pulls]).sum()


def not_applicable(model: nn.Module, input_shape: tuple[int, ...], batch_size: int) -> str | None:
    """Why the method of ``model`` has no meaning at ``batch_size``, or None.

    Batch statistics over a single row are the row itself, an example's own over a single value leave a constant. The
    reason names the layer. Found by a forward pass of a copy without data (on the ``meta`` device); ``model`` is left
    as it was.

    Args:
        model: a network of ``build_model``.
        input_shape: the shape of one example as the network reads it (``bnpbench.networks.reads``).
        batch_size: examples in a training step.
    """
    copy = deepcopy(model, {id(tensor): _on_meta(tensor) for tensor in [*model.parameters(), *model.buffers()]})

    def look(name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shape, where = inputs[0].shape, f"layer {name!r}"
        if isinstance(module, nn.GroupNorm):
            values, reason = shape[1:].numel() // module.num_groups, single_value(where)
        elif isinstance(module, nn.LayerNorm):
            values, reason = prod(module.normalized_shape), single_value(where)
        else:
            values = module.smallest_set(shape) if isinstance(module, FourThings) else shape.numel() // shape[1]
            reason = single_row(where, shape[1], batch_size)
        if values == 1:
            raise NotApplicable(reason)

    for name, module in copy.named_modules():
        if isinstance(module, _OVER_SETS) and not isinstance(module, BatchRenorm):
            module.register_forward_pre_hook(partial(look, name))
    try:
        with torch.no_grad():
            copy(torch.empty(batch_size, *input_shape, device="meta"))
    except NotApplicable as error:
        return str(error)
    return None


def _widen(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.to(module.weight.dtype) for x in inputs)


def _on_meta(tensor: Tensor) -> Tensor:
    meta = tensor.detach().to("meta")
    return nn.Parameter(meta, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else meta


def _batch_norm(options: BatchNorm, features: int, spatial_dims: int, site: str) -> nn.Module:
    if options.inference == "averaged":
        return AveragedBatchNorm(features, eps=options.eps)
    return _BATCH_NORMS[spatial_dims](features, eps=options.eps, momentum=options.momentum)


def _synchronized_batch_norm(options: BatchNorm, features: int, spatial_dims: int, site: str) -> nn.Module:
    momentum = None if options.inference == "averaged" else options.momentum
    return SynchronizedBatchNorm(features, eps=options.eps, momentum=momentum)


def _layer_norm(options: LayerNorm, features: int, spatial_dims: int, site: str) -> nn.Module:
    """Over the features of a row, or over all channels and positions of an example, with an affine a channel."""
    if spatial_dims == 0:
        return nn.LayerNorm(features, eps=options.eps)
    return nn.GroupNorm(1, features, eps=options.eps)


def _group_norm(options: GroupNorm | BnpGroupNorm, features: int, spatial_dims: int, site: str) -> nn.Module:
    return nn.GroupNorm(options.number_of_groups(features), features, eps=options.group_eps)


def _renorm(options: Renorm, features: int, spatial_dims: int, site: str) -> nn.Module:
    return BatchRenorm(features, eps=options.eps, momentum=options.momentum, clipped=options.clipped)


def _four_things(options: FourThingsOptions, features: int, spatial_dims: int, site: str) -> nn.Module:
    group = None if options.group is None else options.channels(features)
    return FourThings(
        features,
        eps=options.eps,
        momentum=options.momentum,
        ghost_batch=options.ghost_batch,
        example_weight=options.example_weight,
        group=group,
    )


def _four_things_pulls(options: FourThingsOptions, model: nn.Module) -> list[Pull]:
    layers = [module for module in model.modules() if isinstance(module, FourThings)]
    if not options.decay or not layers:
        return []
    return [
        Pull(options.decay, [layer.bias for layer in layers]),
        Pull(options.decay, [layer.weight for layer in layers], center=1.0),
    ]


METHODS: dict[str, Method] = {
    "vanilla": Method(),
    "bn": Method(layer=_batch_norm, synchronized=_synchronized_batch_norm, position="post"),
    "bn-pre": Method(layer=_batch_norm, synchronized=_synchronized_batch_norm, position="pre"),
    "renorm": Method(layer=_renorm, position="post"),
    "ln": Method(layer=_layer_norm),
    "gn": Method(layer=_group_norm),
    "4things": Method(layer=_four_things, position="post", pulls=_four_things_pulls),
    "bnp": Method(preconditioned=True),
    "bnp+gn": Method(layer=_group_norm, preconditioned=True),
}
