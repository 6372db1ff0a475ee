"""Batch normalization as the paper's equation (2) reads, the input included, against a program in float64 of its own.

The program knows Algorithm 1, its backward pass by hand, and the three ways to infer; of bnpbench it takes the initial
weights, the order of the examples and the images alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bnpbench.training.state import seed_for
from bnpbench.training.trainer import Trainer
from tests.support.training import trainer

EPS, MOMENTUM, LR, N, EPOCHS = 1e-3, 0.01, 0.1, 10, 3
Array = np.ndarray[Any, Any]


class Network:
    """Dense layers with ReLU; ``normalized`` says which layers' inputs go through Algorithm 1."""

    def __init__(self, ours: Trainer, normalized: list[bool]) -> None:
        weights = [p.detach().double().numpy() for p in ours.model.parameters() if p.ndim == 2]
        self.w = [w.copy() for w in weights]
        self.b = [np.zeros(len(w)) for w in weights]
        self.gamma = [np.ones(w.shape[1]) if on else None for w, on in zip(weights, normalized, strict=True)]
        self.beta = [np.zeros(w.shape[1]) if on else None for w, on in zip(weights, normalized, strict=True)]

    def forward(self, x: Array, fixed: list[tuple[Array, Array]] | None = None) -> tuple[Array, list[Any]]:
        """Logits, and what each layer saw; with ``fixed`` mean and variance of each layer, else the batch's."""
        seen: list[Any] = []
        for layer, (w, b) in enumerate(zip(self.w, self.b, strict=True)):
            mean, variance = (x.mean(0), x.var(0)) if fixed is None else fixed[layer]
            hat, z = None, x
            gamma, beta = self.gamma[layer], self.beta[layer]
            if gamma is not None and beta is not None:
                hat = (x - mean) / np.sqrt(variance + EPS)
                z = gamma * hat + beta
            a = z @ w.T + b
            seen.append((hat, z, a, mean, variance))
            x = np.maximum(a, 0) if layer < len(self.w) - 1 else a
        return x, seen

    def step(self, x: Array, labels: Array) -> list[Any]:
        logits, seen = self.forward(x)
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        delta = shifted / shifted.sum(1, keepdims=True)
        delta[np.arange(len(x)), labels] -= 1
        delta /= len(x)
        for layer in reversed(range(len(self.w))):
            hat, z, _, _, variance = seen[layer]
            into = delta @ self.w[layer]  # the gradient of what the layer reads
            self.w[layer] = self.w[layer] - LR * delta.T @ z
            self.b[layer] = self.b[layer] - LR * delta.sum(0)
            if hat is not None:
                gamma, d_beta, d_gamma = self.gamma[layer], into.sum(0), (into * hat).sum(0)
                scale = gamma / np.sqrt(variance + EPS)
                self.gamma[layer], self.beta[layer] = gamma - LR * d_gamma, self.beta[layer] - LR * d_beta
                into = scale * (into - d_beta / len(x) - hat * d_gamma / len(x))
            if layer:
                delta = into * (seen[layer - 1][2] > 0)
        return [(mean, variance * len(x) / (len(x) - 1)) for *_, mean, variance in seen]


def averages(parts: list[list[tuple[Array, Array]]]) -> list[tuple[Array, Array]]:
    return [
        (np.mean([m for m, _ in layer], 0), np.mean([v for _, v in layer], 0)) for layer in zip(*parts, strict=True)
    ]


def score(network: Network, x: Array, labels: Array, fixed: list[tuple[Array, Array]]) -> tuple[float, float]:
    logits, _ = network.forward(x, fixed)
    top = logits.max(1, keepdims=True)
    losses = np.log(np.exp(logits - top).sum(1)) + top[:, 0] - logits[np.arange(len(x)), labels]
    return float(losses.mean()), float((logits.argmax(1) == labels).mean())


@pytest.mark.parametrize("inference", ["running", "averaged", "frozen"])
@pytest.mark.parametrize("with_input", [True, False])
def test_training_and_inference_equal_a_program_in_float64(with_input: bool, inference: str) -> None:
    method = {"kind": "bn", "input": with_input, "inference": inference}
    ours = trainer(method=method, optimizer={"kind": "sgd", "lr": LR}, batch_size=N)
    network = Network(ours, [with_input, True, True])
    x, labels = ours.examples.images.double().numpy(), ours.examples.labels.numpy()  # type: ignore[attr-defined]
    test_x, test_y = (part.numpy() for part in next(iter(ours.examples.test())))
    rows = [ours.epoch() for _ in range(EPOCHS)]

    order = torch.Generator().manual_seed(seed_for(1, "order"))
    running = [(np.zeros(w.shape[1]), np.ones(w.shape[1])) for w in network.w]
    so_far: list[list[tuple[Array, Array]]] = []
    for row in rows:
        for batch in torch.randperm(len(x), generator=order)[: len(x) // N * N].view(-1, N).numpy():
            found = network.step(x[batch], labels[batch])
            so_far.append(found)
            running = [
                (m + MOMENTUM * (new_m - m), v + MOMENTUM * (new_v - v))
                for (m, v), (new_m, new_v) in zip(running, found, strict=True)
            ]
        fixed = {"running": running, "averaged": averages(so_far), "frozen": frozen(network, x)}[inference]
        loss, accuracy = score(network, test_x.astype(np.float64), test_y, fixed)
        assert row["test_loss"] == pytest.approx(loss, rel=2e-5)
        assert row["test_accuracy"] == pytest.approx(accuracy)
    trained = [p.detach().double().numpy() for p in ours.model.parameters() if p.ndim == 2]
    for mine, w in zip(trained, network.w, strict=True):
        np.testing.assert_allclose(mine, w, atol=2e-6)


def frozen(network: Network, x: Array) -> list[tuple[Array, Array]]:
    """Algorithm 2 of Ioffe and Szegedy: E[x] and m/(m - 1) E[var] over mini-batches, the weights held still."""
    generator = torch.Generator().manual_seed(seed_for(1, "frozen statistics"))
    whole = torch.randperm(len(x), generator=generator)[: len(x) // N * N]
    parts = []
    for batch in whole.view(-1, N).numpy():
        _, seen = network.forward(x[batch])
        parts.append([(mean, variance * N / (N - 1)) for *_, mean, variance in seen])
    return averages(parts)


def test_to_infer_by_the_frozen_network_changes_no_step() -> None:
    """Statistics of evaluation leave weights, moments and random states as those of a run that infers otherwise."""
    by_running, by_frozen = (
        trainer(method={"kind": "bn", "input": True, "inference": inference}) for inference in ("running", "frozen")
    )
    for _ in range(3):
        ours, theirs = by_running.epoch(), by_frozen.epoch()
        assert ours["train_loss"] == theirs["train_loss"]
        assert ours["test_loss"] != theirs["test_loss"]
    for mine, other in zip(by_running.model.parameters(), by_frozen.model.parameters(), strict=True):
        assert torch.equal(mine, other)
