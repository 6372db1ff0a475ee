"""Whether two engines take the same steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer
from tests.support.training import CPU, cell, weights

SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.9}
# Adam divides a gradient by its size and eps. With the default 1e-8 one that is rounding alone, of a bias before batch
# normalization or of a weight whose terms cancel, moves its weight as far as any other.
ADAM = {"kind": "adam", "lr": 0.01, "eps": 1e-3}
METHODS = ["vanilla", "bn", "bn-pre", "renorm", "ln", "4things", "bnp", {"kind": "bnp", "statistics": "batch"}]
IMAGES = {"dataset": {"kind": "synthetic", "shape": (3, 20, 20), "train": 103, "test": 41, "classes": 5}}
NETWORKS: dict[str, dict[str, Any]] = {
    "fc": {},  # of the trainer's default: the lean form costs more there
    "wide": {"network": {"kind": "fc", "hidden": (300, 200)}},  # the lean form costs less in the hidden layers
    "cnn": {"network": {"kind": "cnn", "channels": (4, 8, 4), "dense": 8}, **IMAGES},
    "resnet": {"network": {"kind": "resnet", "depth": 8}, **IMAGES},
    "vit": {"network": {"kind": "vit", "width": 16, "depth": 1}, **IMAGES},
    "gpt": {
        "network": {"kind": "gpt", "width": 16, "depth": 1},
        "dataset": {"kind": "text", "context": 16},
        "train_limit": 100,
    },
}


def disagreement(network: str, method: Any, optimizer: dict[str, Any], dtype: torch.dtype, **more: Any) -> float:
    """How far a compiled step goes from the eager one, relative to the largest number, from ten states of a run.

    Weights, buffers, running values of BNP, and the sum of the losses.
    """
    torch._dynamo.reset()
    with default(dtype):
        changes = {"method": method, "optimizer": optimizer, **NETWORKS[network], **more}
        eager, compiled = (of_type(dtype, engine=engine, **changes) for engine in ("eager", "compiled"))
        start = weights(compiled)
        compiled.prepare()
        assert compiled.engine.active == "compiled"
        assert torch.equal(weights(compiled), start)  # tracing and compiling left no trace
        worst = 0.0
        for batch in eager.examples.training(torch.randperm(100), 10, 0):
            compiled.state.restore(eager.state.snapshot())
            worst = max(worst, away(compiled, eager, batch))
        return worst


@contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    """Also of what an optimizer makes at its first step."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def away(one: Trainer, other: Trainer, batch: tuple[torch.Tensor, ...]) -> float:
    """How far a step of one trainer goes from the same step of the other, relative to the largest number."""
    for each in (one, other):
        each.step.loss_sum.zero_()
        each.engine.call(*batch)
    return max(
        ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)).item()
        for ours, theirs in zip(numbers(one), numbers(other), strict=True)
    )


def of_type(dtype: torch.dtype, **changes: Any) -> Trainer:
    one = cell(**changes)
    examples = Resident(one.settings, Path(), CPU)
    if examples.images.is_floating_point():
        examples.images = examples.images.to(dtype)
    return Trainer(one, examples, CPU)


def numbers(trained: Trainer) -> list[torch.Tensor]:
    running = trained.bnp.state_dict() if trained.bnp else {}
    return [weights(trained), trained.step.loss_sum, *trained.model.buffers(), *running.values()]
