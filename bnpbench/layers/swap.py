"""Normalization layers of a network of others: found, described, and put in by a method's own.

A **site** is a module that normalizes. Its kind says over what: a *map* (N, C, ...) of channels, as batch, group and
instance normalization see it, or *rows* of features, each by itself, as layer and RMS normalization see every position
of (..., C), or of (N, C, ...) where they go over channels. What is put in a site of rows is a layer of rows (R, C), R
being all positions of all examples. Activations that are part of a normalization's class stay behind it.

A class that is torch's own is known by its type. A subclass with a ``forward`` of its own is believed what it computes:
it is a site where a copy with random values gives what torch's function gives on the same input, its ``drop`` and
``act`` behind it. All others are named and stay; only methods that leave normalizations alone run on such a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import _disable_current_modes

from bnpbench.errors import NotApplicable
from bnpbench.layers.probing import on_meta
from bnpbench.layers.rows import Rows
from bnpbench.sites import Normalization
from bnpbench.text import number_of

Over = Literal["map", "last", "first"]
"""What a site normalizes: a map of channels; rows of the last dimension; rows of the first one behind the examples."""

_MAPS = (_BatchNorm, _InstanceNorm, nn.GroupNorm)
_ROWS = (nn.LayerNorm, nn.RMSNorm)
_DIMS = {nn.BatchNorm2d: 2, nn.BatchNorm3d: 3, nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3}
_BEHIND = ("drop", "act")  # in this order, in timm's classes of a normalization with its activation


@dataclass(frozen=True)
class Place:
    """A site of a network.

    Attributes:
        name: of its module; the first, where it has several.
        module: what normalizes there.
        features: channels, or features of a row; 0 where ``fault`` says why nothing else can stand there.
        over: what is normalized.
        dims: dimensions behind the channels; None where only a forward pass tells, 0 for rows.
        behind: the modules of ``module`` that follow the normalization.
        fault: why no other layer can be put there.
    """

    name: str
    module: nn.Module
    features: int = 0
    over: Over = "map"
    dims: int | None = None
    behind: tuple[nn.Module, ...] = ()
    fault: str | None = None

    def __str__(self) -> str:
        """What results tell of it: ``layer1.0.bn1: BatchNorm2d of 64``."""
        kind = type(self.module).__name__
        return f"{self.name}: {kind} of {self.features}" if self.features else f"{self.name}: {kind}"


def places(model: nn.Module) -> list[Place]:
    """The sites of a network, in the order of its modules; one that stands in several places, once.

    Args:
        model: on any device, ``meta`` too.
    """
    return [place for name, module in model.named_modules() if (place := _place(name, module)) is not None]


def normalizes(module: nn.Module) -> bool:
    """Whether a module is a normalization, of torch or of others."""
    return isinstance(module, (*_MAPS, *_ROWS)) or _looks_like_one(module)


def swapped(model: nn.Module, normalization: Normalization, input_shape: tuple[int, ...]) -> nn.Module:
    """The network with a method's layer at every site, changed in place.

    A layer gets the place's device, type and mode, an affine where there was one and as much of it (no bias is added),
    its values, and its running statistics where both have them. Without a maker the sites are left empty: what follows
    a normalization in its class stays.

    Args:
        model: any module.
        normalization: what is put there.
        input_shape: of one example.

    Returns:
        ``model``, or what stands for it where it is a site itself.

    Raises:
        NotApplicable: a site cannot be served; names it and says how many can.
    """
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise NotApplicable(
            "the network is scripted, and layers of scripted modules cannot be replaced: give it as it was before"
        )
    found = places(model)
    seen = _shapes(model, found, input_shape) if any(p.dims is None and not p.fault for p in found) else {}
    sized = (tensor for tensor in _tensors(model) if not is_lazy(tensor))
    like = next(filter(torch.is_floating_point, sized), torch.empty(0))
    made, faults = dict[nn.Module, nn.Module](), list[str]()
    for place in found:
        try:
            made[place.module] = _replacement(place, normalization, seen, like)
        except NotApplicable as error:
            faults.append(str(error))
    if faults:
        more = f" (and {len(faults) - 1} more)" if faults[1:] else ""
        served = len(found) - len(faults)
        raise NotApplicable(f"{served} of {number_of(len(found), 'site')}: {faults[0]}{more}", served)
    modules: list[Any] = list(model.modules())
    for module in modules:
        if normalization.maker is None and getattr(module, "inplace", False):
            module.inplace = False  # what it writes over may now be what a normalization kept for others: its input
        for name, child in module._modules.items():
            if child in made:
                module._modules[name] = made[child]
                if isinstance(module, nn.TransformerEncoderLayer):
                    module.activation_relu_or_gelu = 0  # else torch's fast path computes layer norm in eval mode
    return made.get(model, model)


# --- what a module is --------------------------------------------------------------------------


def _place(name: str, module: nn.Module) -> Place | None:
    kind = type(module)
    if isinstance(module, LazyModuleMixin) and isinstance(module, _MAPS):
        return Place(name, module, fault="it is lazy and has no size yet: run the network once in its factory")
    base = next((known for known in (*_MAPS, *_ROWS) if isinstance(module, known)), None)
    if base is None and not _looks_like_one(module):
        return None
    if (fault := _bound(module)) is not None:
        return Place(name, module, fault=fault)
    behind = tuple(child for part in _BEHIND if isinstance(child := getattr(module, part, None), nn.Module))
    plain = kind.__module__.startswith("torch.nn.")
    place = Place(name, module, behind=() if plain else behind)
    if isinstance(module, _MAPS):
        size = module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features
        place = replace(place, features=size, dims=next((d for c, d in _DIMS.items() if isinstance(module, c)), None))
        if plain or _computes(place, _torchs(kind).forward):
            return place
    else:
        shape = getattr(module, "normalized_shape", None) or getattr(module, "weight", torch.empty(0)).shape
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if len(shape) != 1:
            return Place(name, module, fault=f"it normalizes over {len(shape)} dimensions, {list(shape)}, at once")
        place = replace(place, features=shape[0], over="last", dims=0)
        if plain:
            return place
        for over in ("last", "first"):
            known = replace(place, over=over)
            if any(_computes(known, _over(over, function)) for function in _FUNCTIONS):
                return known
    return Place(
        name, module, fault=f"what its class {kind.__name__} computes is none of the normalizations known here"
    )


def _looks_like_one(module: nn.Module) -> bool:
    """Whether a module that is none of torch's normalizations may be one of its author's."""
    kind = type(module).__name__
    if isinstance(module, _WITH_CHILDREN) or kind in _GATES or "norm" not in kind.lower():
        return False
    if any(True for name, _ in module.named_parameters() if "." in name):  # a wrapper of other layers
        return False
    return hasattr(module, "normalized_shape") or any(p is not None for p in module._parameters.values())


_GATES = ("GlobalResponseNorm",)  # scales channels by their norms, beside the normalization of its block
_WITH_CHILDREN = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def _bound(module: nn.Module) -> str | None:
    """Why a module cannot be taken out of its network without losing something; None where it can."""
    if parametrize.is_parametrized(module):
        return "it is parametrized"
    if any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)):
        return "it carries hooks"
    return None


def _torchs(kind: type) -> type[nn.Module]:
    """The class of torch that a module's class comes from."""
    return next(one for one in kind.__mro__ if one.__module__.startswith("torch.nn."))


def _layer_norm(module: Any, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], _affine(module, "weight"), _affine(module, "bias"), _eps(module))


def _rms_norm(module: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], _affine(module, "weight"), _eps(module))


_FUNCTIONS = (_layer_norm, _rms_norm)


def _affine(module: nn.Module, name: str) -> Tensor | None:
    return module._parameters.get(name)


def _eps(module: Any) -> float:
    told = getattr(module, "eps", getattr(module, "variance_epsilon", None))
    return float(told) if isinstance(told, float | int) else 1e-6


def _over(over: Over, function: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """The function over the last dimension, or over the first behind the examples."""
    if over == "last":
        return function
    return lambda module, x: function(module, x.movedim(1, -1)).movedim(-1, 1)


def _computes(place: Place, function: Callable[[Any, Tensor], Tensor]) -> bool:
    """Whether a site's module gives what ``function`` gives, and then what it says is behind it, in both modes.

    Tried on a copy on the CPU with random values, whatever modes are on; the random state is left as it was.
    """
    with _disable_current_modes(), torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        copy: Any = deepcopy(place.module, {id(t): _random(t) for t in _tensors(place.module)})
        sides = (3,) * (2 if place.dims is None else place.dims or 2)
        shape = (2, *sides, place.features) if place.over == "last" else (2, place.features, *sides)
        x = torch.randn(shape)
        parts = [getattr(copy, part) for part in _BEHIND if isinstance(getattr(copy, part, None), nn.Module)]
        try:
            with torch.no_grad():
                for mode in (False, True):
                    copy.train(mode)
                    torch.manual_seed(1)
                    own = copy(x)
                    torch.manual_seed(1)
                    expected = function(copy, x)
                    for part in parts:
                        expected = part(expected)
                    if own.shape != expected.shape or not torch.allclose(own, expected, rtol=1e-4, atol=1e-5):
                        return False
        except Exception:  # of any kind: it does not take such an input
            return False
    return True


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _random(tensor: Tensor) -> Tensor:
    """A positive tensor of the same shape: as good for a variance as for a weight."""
    if not tensor.is_floating_point():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    values = torch.rand(tensor.shape) + 0.5
    return nn.Parameter(values) if isinstance(tensor, nn.Parameter) else values


# --- what is put there -------------------------------------------------------------------------


def _replacement(place: Place, normalization: Normalization, seen: Mapping[nn.Module, int], like: Tensor) -> nn.Module:
    """What stands at a site from now on, of the site's device and type, or of those of ``like`` if it has none.

    Raises:
        NotApplicable: nothing can.
    """
    if place.fault is not None:
        raise NotApplicable(f"the normalization {place.name!r} cannot be replaced: {place.fault}")
    if normalization.maker is None:
        layer: nn.Module = nn.Identity()
    else:
        dims = place.dims if place.dims is not None else seen.get(place.module)
        if dims is None:
            raise NotApplicable(
                f"the normalization {place.name!r} is not reached by a forward pass: what it normalizes is not known"
            )
        like = next(filter(torch.is_floating_point, _tensors(place.module)), like)
        with torch.device(like.device):
            layer = normalization.make(place.features, dims, place.name).to(dtype=like.dtype)
        _carry(place.module, layer)
        if place.over == "first" or (place.over == "last" and not isinstance(layer, _ROWS)):
            layer = Rows(layer, -1 if place.over == "last" else 1)
    if place.behind:
        layer = nn.Sequential(layer, *place.behind)
    return layer.train(place.module.training)


_MADE_WITH = "_bnpbench_made_with"
"""The attribute of a layer that was put in which holds its values before any were carried over."""


def put_in(module: nn.Module) -> bool:
    """Whether a method put this layer in the place of a network's own."""
    return hasattr(module, _MADE_WITH)


def as_made(layer: nn.Module) -> None:
    """Give a layer that was put in the values back that it was made with; what was carried over is lost."""
    with torch.no_grad():
        for name, value in getattr(layer, _MADE_WITH).items():
            if isinstance(tensor := getattr(layer, name, None), Tensor):
                tensor.copy_(value)


def _carry(old: nn.Module, new: nn.Module) -> None:
    """Give ``new`` what of the affine and the running statistics of ``old`` both have; it counts its own batches."""
    values = (*new._parameters.items(), *new._buffers.items())
    setattr(new, _MADE_WITH, {name: value.detach().clone() for name, value in values if value is not None})
    with torch.no_grad():
        for name in ("weight", "bias"):
            mine, theirs = new._parameters.get(name), old._parameters.get(name)
            if mine is None:
                continue
            if theirs is None:
                _without(new, name, mine)
            else:
                mine.requires_grad_(theirs.requires_grad)
                if mine.shape == theirs.shape:
                    mine.copy_(theirs)
        for name, mine_ in new._buffers.items():
            if name == "num_batches_tracked" and type(new) is not type(old):
                continue  # what follows from it is the kind's own: a limit that is raised, the weight of an average
            value = old._buffers.get(name)
            if mine_ is not None and value is not None and mine_.shape == value.shape:
                mine_.copy_(value)


def _without(layer: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Take a weight or a bias out of a layer; where its class cannot do without, it stays at its value for good."""
    if type(layer).__module__.startswith("torch.nn."):
        setattr(layer, name, None)
    else:
        parameter.requires_grad_(False)


def _shapes(model: nn.Module, found: Iterable[Place], input_shape: tuple[int, ...]) -> dict[nn.Module, int]:
    """For each site that a forward pass reaches, the dimensions behind its channels.

    Raises:
        NotApplicable: the network cannot be run without data, on ``meta``.
    """
    seen: dict[nn.Module, int] = {}
    copy = on_meta(model)
    origin = dict(zip(copy.modules(), model.modules(), strict=True))
    handles = list(_noting(copy, origin, seen, {place.module for place in found}))
    try:
        with torch.no_grad():
            copy.eval()(torch.empty(2, *input_shape, device="meta"))
    except Exception as error:
        raise NotApplicable(
            "what its normalizations see is only found by a forward pass without data, which ends in "
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _noting(
    copy: nn.Module, origin: Mapping[nn.Module, nn.Module], seen: dict[nn.Module, int], wanted: set[nn.Module]
) -> Iterator[Any]:
    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen[origin[module]] = args[0].dim() - 2

    return (module.register_forward_pre_hook(note) for module in copy.modules() if origin[module] in wanted)
