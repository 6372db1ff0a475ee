"""Networks whose gradients are preconditioned from both sides, beside the explicit matrices."""

from __future__ import annotations

import copy
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp.fisher import drawn_labels
from bnpbench.bnp.rewriter import Rewriter
from tests.support.curvature import Layers, seen
from tests.support.kinds import made
from tests.support.ranks import together

TOLERANCE = 1e-9


def dense(bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6, bias=bias), nn.Tanh(), nn.Linear(6, 3, bias=bias))


def convolutions(bias: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), padding=(1, 0), bias=bias), nn.Tanh(),
        nn.Conv2d(4, 4, 2, stride=2, dilation=(1, 2), groups=2, padding=1, padding_mode="circular", bias=bias),
        nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(24, 3, bias=bias),
    )  # fmt: skip


class Tokens(nn.Module):
    """One label an example from several tokens, or a label a token."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.first, self.last, self.pooled = nn.Linear(4, 5), nn.Linear(5, 3, bias=False), pooled

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        return self.last(x.mean(1)) if self.pooled else self.last(x).transpose(1, 2)


CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "dense": (dense, (8, 4), (8,)),
    "dense without bias": (lambda: dense(False), (8, 4), (8,)),
    "convolutions": (convolutions, (6, 2, 3, 6), (6,)),
    "convolutions without bias": (lambda: convolutions(False), (6, 2, 3, 6), (6,)),
    "pooled tokens": (lambda: Tokens(True), (4, 3, 4), (4,)),
    "tokens": (lambda: Tokens(False), (4, 3, 4), (4, 3)),
}


def batch_of(name: str, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    _, shape, labels = CASES[name]
    return torch.randn(shape, generator=generator, dtype=torch.float64), torch.randint(3, labels, generator=generator)


def model_of(name: str) -> nn.Module:
    torch.manual_seed(1)
    model: nn.Module = CASES[name][0]()
    return model.double()


def check(name: str, options: dict[str, Any], parts: int = 1, count: Any = "backward", steps: int = 3) -> None:
    """Steps of a model, each in so many micro-batches, beside the oracle's."""
    model = model_of(name)
    rewriter, oracle = Rewriter(model, made("method", options), count=count), Layers(model, options)
    draws = 0
    for seed in range(steps):
        x, labels = batch_of(name, seed)
        model.zero_grad()
        drawn = []
        for part, own in zip(x.chunk(parts), labels.chunk(parts), strict=True):
            output = model(part)
            rewriter.look_back(output)
            if options.get("fisher") == "sampled":
                drawn.append(drawn_labels(output, torch.tensor(draws)))
                draws += 1
            (F.cross_entropy(output, own) / parts).backward()
        batch = seen(copy.deepcopy(model), x, torch.cat(drawn) if drawn else labels, options.get("fisher", "empirical"))
        expected = oracle.step(batch)
        rewriter.precondition()
        assert_gradients(model, expected)
        _descend(model)


def assert_gradients(model: nn.Module, expected: dict[str, tuple[Tensor, Tensor | None]]) -> None:
    for layer, (weight, bias) in expected.items():
        module = model.get_submodule(layer)
        for found, wanted in ((module.weight.grad, weight), (None if bias is None else module.bias.grad, bias)):
            if wanted is not None:
                error = (found - wanted).abs().max() / wanted.abs().max()
                assert error < TOLERANCE, f"{layer}: relative error {error:.1e}"


# --- two ranks -----------------------------------------------------------------------------------

SHARES = (5, 3)  # of the examples of a batch


def ranks_check(folder: Path, cases: list[tuple[str, dict[str, Any]]]) -> None:
    """The same steps on two ranks with uneven shares of each batch, beside the oracle's on the whole batch."""
    together(_on_rank, 2, str(folder), cases)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]
    for number, (name, options) in enumerate(cases):
        model, draws = model_of(name), 0
        oracle = Layers(model, options)
        for seed, (first, second) in enumerate(zip(ranks[0][number], ranks[1][number], strict=True)):
            x, labels = batch_of(name, seed)
            x, labels = torch.cat([x, x])[:8], torch.cat([labels, labels])[:8]
            if options.get("fisher") == "sampled":
                outputs = [model(part) for part in x.split(SHARES)]
                labels_seen = [drawn_labels(o, torch.tensor(rank * 2**40 + draws)) for rank, o in enumerate(outputs)]
                draws += 1
            else:
                labels_seen = [labels]
            model.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            batch = seen(copy.deepcopy(model), x, torch.cat(labels_seen), options.get("fisher", "empirical"))
            expected = oracle.step(batch)
            for found in (first, second):
                for parameter, grad in zip(model.parameters(), found, strict=True):
                    parameter.grad = grad
                assert_gradients(model, expected)
            _descend(model)


def _on_rank(rank: int, folder: str, cases: list[tuple[str, dict[str, Any]]]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timeout)
    found = []
    for name, options in cases:
        model, grads = model_of(name), []
        rewriter = Rewriter(model, made("method", options), count="forward")
        for seed in range(3):
            x, labels = batch_of(name, seed)
            x, labels = (torch.cat([each, each])[:8].split(SHARES)[rank] for each in (x, labels))
            model.zero_grad()
            output = model(x)
            rewriter.look_back(output)
            (F.cross_entropy(output, labels) * len(x) * 2 / 8).backward()  # as the bench weighs it
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
            rewriter.precondition()
            grads.append([parameter.grad.clone() for parameter in model.parameters()])
            _descend(model)
        found.append(grads)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _descend(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad
