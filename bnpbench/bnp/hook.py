"""What a tracked module carries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.bnp.pool import Layer


class ForwardHook:
    """Shows each call in training mode to its layer. Copies and pickles of the module carry an inert hook instead."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not (module.training and output.requires_grad):
            return
        inputs = input_of(args, kwargs)
        if torch.compiler.is_dynamo_compiling():
            self.layer.observe_compiled(inputs, output)
        elif self.layer.weight.requires_grad:
            self.layer.observe(inputs, output)

    def __deepcopy__(self, _memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[type[Inert], tuple[()]]:
        return Inert, ()


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a Linear or Conv was called with, by position or by name."""
    inputs: Tensor = args[0] if args else kwargs["input"]
    return inputs


class Inert:
    """The hook of a copied or unpickled module: it does nothing."""

    def __call__(self, *_: object) -> None:
        return None
