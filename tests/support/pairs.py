"""A transform that keeps what it is shown of inputs and of gradients at outputs, and what that has to be."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bnpbench import GradientPlugin


class Pairs(GradientPlugin):
    """Carries what it was given; the gradient stays."""

    gradients = True
    kind: str = "pairs"
    passes: int = 0

    def start(self, layer: Any) -> dict[str, Tensor]:
        n = layer.outputs // layer.groups
        return {"inputs": torch.zeros(layer.groups, layer.columns), "outputs": torch.zeros(layer.groups, n, n)}

    def input_sums(self, layer: Any, state: Any, rows: Tensor) -> Tensor:
        return rows.sum(1)

    def output_sums(self, layer: Any, state: Any, grads: Tensor) -> Tensor:
        return grads.mT @ grads

    def fold(self, layer: Any, state: Any, sums: Any) -> None:
        state["inputs"].copy_(sums.inputs)
        state["outputs"].copy_(sums.outputs)

    def rewrite(self, layer: Any, state: Any, gradient: Tensor) -> Tensor:
        return gradient

    def backwards(self, classes: int) -> int:
        return self.passes

    def objective(self, output: Tensor, number: int, draw: Tensor) -> Tensor:
        return output.log_softmax(1)[:, number].sum()


def output_gradients(model: nn.Sequential, batches: list[Tensor], losses: list[Any]) -> dict[str, Tensor]:
    """Sums of the products of the gradients at the outputs of layers, by groups, for each batch and each loss."""
    found: dict[str, Tensor] = {}
    for batch in batches:
        kept: dict[str, Tensor] = {}
        h = batch
        for name, module in model.named_children():
            h = module(h.clone())
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                kept[name] = h
        for loss in losses:
            grads = torch.autograd.grad(loss(h), list(kept.values()), retain_graph=True)
            for name, grad in zip(kept, grads, strict=True):
                groups = getattr(model.get_submodule(name), "groups", 1)
                rows = grad if grad.dim() == 2 else grad.permute(0, 2, 3, 1).reshape(-1, grad.shape[1])
                moment = torch.stack([part.T @ part for part in rows.chunk(groups, 1)])
                found[name] = found.get(name, 0) + moment
    return found
