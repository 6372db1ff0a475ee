"""A network run once without data, on ``meta``, to see what of it is called."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.bnp.pool import in_backward
from bnpbench.layers.weighted import weighted


def on_meta(model: nn.Module) -> nn.Module:
    """A copy without data."""
    tensors = [*model.parameters(), *model.buffers()]
    copy: nn.Module = deepcopy(model, {id(tensor): _meta(tensor) for tensor in tensors})
    return copy


@dataclass(frozen=True)
class Calls:
    """How the dense layers and convolutions of a network are used by a training step.

    Attributes:
        uncalled: those whose weight gets a gradient though nothing calls them, or not where gradients pass.
        once: whether each of the others is called once, in the forward pass, and that call gets a gradient: those of
            several calls come in an order of their own.
    """

    uncalled: frozenset[str]
    once: bool


def calls_of(model: nn.Module, input_shape: tuple[int, ...]) -> Calls | None:
    """What a forward and a backward pass in training mode call; None where it cannot be run without data.

    Args:
        model: a network that takes (N, *input_shape) and gives a tensor; left as it was.
        input_shape: of one example.
    """
    copy = on_meta(model).train()
    made, arrived = Counter[str](), Counter[str]()
    layers = dict(weighted(copy))
    handles = [module.register_forward_hook(_Note(name, made, arrived)) for name, module in layers.items()]
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            copy(torch.empty(2, *input_shape, device="meta")).sum().backward()
    except Exception:  # of any kind: it looks at values that are not there, or gives no tensor
        return None
    finally:
        for handle in handles:
            handle.remove()
    trained = {name for name, module in layers.items() if module.weight.grad is not None}
    uncalled = frozenset(name for name in trained if not arrived[name])
    return Calls(uncalled, all(made[name] == arrived[name] == 1 for name in trained - uncalled))


class _Note:
    """A forward hook: counts the calls of a layer in the forward pass, and the gradients that reach its outputs."""

    def __init__(self, name: str, made: Counter[str], arrived: Counter[str]) -> None:
        self.name, self.made, self.arrived = name, made, arrived

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if output.grad_fn is None:
            return
        if not in_backward():  # else it is recomputed
            self.made[self.name] += 1
        source = output if output._base is None else output._base
        if source.grad_fn is not None:
            source.grad_fn.register_prehook(self._arrive)

    def _arrive(self, grads: tuple[Tensor | None, ...]) -> None:
        if grads[0] is not None:
            self.arrived[self.name] += 1


def _meta(tensor: Tensor) -> Tensor:
    meta = tensor.detach().to("meta")
    return nn.Parameter(meta, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else meta
