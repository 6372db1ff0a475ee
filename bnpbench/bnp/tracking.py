"""Which layers of a model BNP preconditions, and why it leaves the others alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bnpbench.bnp.lean import Linear

Predicate = Callable[[str, nn.Module], bool]

_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FORWARDS = [kind.forward for kind in (*_KINDS, Linear)]
LEFT_OUT = "left out by the predicate `layers`"
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def find_layers(model: nn.Module, wanted: Predicate | None) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """The layers to precondition.

    Args:
        model: any module.
        wanted: of name and module; None: every layer that can be.

    Returns:
        The layers by name, and the reason for every other module that has parameters of its own.
    """
    modules = dict(model.named_modules())
    owners = Counter(id(p) for module in modules.values() for p in set(module._parameters.values()) if p is not None)
    layers: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for name, module in modules.items():
        reason = _reason_to_skip(module, owners)
        if reason is None and wanted is not None and not wanted(name, module):
            reason = LEFT_OUT
        if reason is None:
            layers[name] = module
        elif isinstance(module, (*_KINDS, *_TRANSPOSED)) or any(p is not None for p in module._parameters.values()):
            skipped[name] = reason
    return layers, skipped


class Fingerprint:
    """Which modules stand at the places of a model's layers, and which tensors are their weights, at some moment.

    Args:
        model: any module.
        layers: some of its modules.

    Attributes:
        layout: device and dtype of each weight.
    """

    def __init__(self, model: nn.Module, layers: Iterable[nn.Module]) -> None:
        self._edges: list[tuple[dict[str, nn.Module | None], str, nn.Module]] = []
        wanted = set(layers)
        names = [name for name, module in model.named_modules() if module in wanted]
        above = {name[:end] for name in names for end in range(len(name) + 1) if end == len(name) or name[end] == "."}
        for name in sorted(above - {""}):
            parent, _, key = name.rpartition(".")
            siblings = model.get_submodule(parent)._modules
            self._edges.append((siblings, key, model.get_submodule(name)))
        self._weights = [
            (module._parameters, module.weight, module.weight.dtype, module.weight.device)
            for module in model.modules()
            if module in wanted
        ]
        self.layout = [(device, dtype) for _, _, dtype, device in self._weights]

    def matches(self) -> bool:
        """Whether all of that is as it was. Called at every step."""
        for siblings, key, module in self._edges:
            if siblings.get(key) is not module:
                return False
        for parameters, weight, dtype, device in self._weights:
            if parameters.get("weight") is not weight or weight.dtype is not dtype or weight.device != device:
                return False
        return True


def _reason_to_skip(module: nn.Module, owners: Counter[int]) -> str | None:
    kind = type(module).__name__
    if isinstance(module, _TRANSPOSED):
        return f"{kind}: BNP is not defined for transposed convolutions"
    if not isinstance(module, _KINDS):
        return f"{kind}: neither a Linear nor a convolution"
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return f"{kind}: MultiheadAttention uses its weight without calling it"
    own = module._parameters
    if parametrize.is_parametrized(module) or own.get("weight") is None or "bias" not in own:
        return "parametrized: its weight or bias is computed from other parameters"
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        return "lazy: it has no weights yet; run one forward pass before making BNP"
    weight, bias = module.weight, module.bias
    if any(_is_sharded(p) for p in (weight, bias) if p is not None) or weight.shape != _shape(module):
        return "sharded: this process holds only a part of its weights"
    if any(owners[id(p)] > 1 for p in (weight, bias) if p is not None):
        return "tied: it shares a parameter with another module"
    if not weight.is_floating_point() or weight.numel() == 0:
        return f"weights of {tuple(weight.shape)} {weight.dtype}: nothing to precondition"
    if type(module).forward not in _FORWARDS:
        return f"{kind}: its class defines a forward of its own"
    return None


def _shape(module: nn.Module) -> torch.Size:
    if isinstance(module, nn.Linear):
        return torch.Size((module.out_features, module.in_features))
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    return torch.Size((module.out_channels, module.in_channels // module.groups, *module.kernel_size))


def _is_sharded(parameter: Tensor) -> bool:
    tensors = sys.modules.get("torch.distributed.tensor")  # nobody made a DTensor without importing it
    return tensors is not None and isinstance(parameter, tensors.DTensor)
