"""What a tracked module carries."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.bnp.pool import Layer

_transform = torch._C._functorch.peek_interpreter_stack


class ForwardHook:
    """Shows each call in training mode to its layer. Copies and pickles of the module carry an inert hook instead.

    Args:
        layer: of the module.
        owner: the BNP that made it; the hook does not keep that alive.
    """

    def __init__(self, layer: Layer, owner: object) -> None:
        self.layer, self.owner = layer, weakref.ref(owner)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not (module.training and output.requires_grad):
            return
        inputs = input_of(args, kwargs)
        if torch.compiler.is_dynamo_compiling():
            self.layer.observe_compiled(inputs, output)
        elif _transform() is not None:
            return  # torch.func: what is differentiated are copies of the parameters, and those have no .grad
        elif self.layer.weight.requires_grad:
            self.layer.observe(inputs, output)

    def __deepcopy__(self, _memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[type[Inert], tuple[()]]:
        return Inert, ()


def live_hook(module: nn.Module) -> ForwardHook | None:
    """The hook of a BNP that is still in use, if the module has one; those of discarded ones are taken off."""
    for key, hook in list(module._forward_hooks.items()):
        if isinstance(hook, ForwardHook):
            if hook.owner() is not None:
                return hook
            del module._forward_hooks[key]
            module._forward_hooks_with_kwargs.pop(key, None)
    return None


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a Linear or Conv was called with, by position or by name."""
    inputs: Tensor = args[0] if args else kwargs["input"]
    return inputs


class Inert:
    """The hook of a copied or unpickled module: it does nothing."""

    def __call__(self, *_: object) -> None:
        return None
