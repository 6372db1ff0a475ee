"""Activations of a dense network in training on a real data set: where ``--data`` tries the statements too."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.datasets import storage
from bnpbench.errors import DataError
from bnpbench.registry import built_in

STEPS = (0, 100, 400)  # of training, after which the network is looked at
WIDTH, BATCH, LEARNING_RATE = 100, 60, 0.01  # section 5.1, Table 2


@dataclass(frozen=True)
class Activations:
    """A vanilla network n-100-100-classes at some moments of its training.

    Attributes:
        name: of the data set.
        images: (M, *shape), a sample of the training images in float64.
        labels: (M,).
        networks: training step to the network as it was then, in float64.
    """

    name: str
    images: Tensor
    labels: Tensor
    networks: dict[int, nn.Sequential]

    def hidden(self, step: int, layer: int, examples: int) -> Tensor:
        """What dense layer 0, 1 or 2 reads after ``step`` steps: (examples, n)."""
        with torch.no_grad():
            rows: Tensor = self.networks[step][: 2 * layer](self.images[:examples].flatten(1))
        return rows

    def live(self, step: int, layer: int, examples: int) -> Tensor:
        """The same without the features that do not vary."""
        return varying(self.hidden(step, layer, examples))


def varying(rows: Tensor) -> Tensor:
    """The columns of (N, n) whose standard deviation exceeds 1e-12 times the largest entry."""
    return rows[:, rows.std(0, correction=0) > 1e-12 * rows.abs().max()]


def load(name: str, data_dir: Path | None, seed: int) -> Activations:
    """Train a network on the data set ``name`` and keep it at ``STEPS``.

    Raises:
        DataError: no such data set, or it is missing or damaged.
    """
    root = storage.root(data_dir)
    kind = built_in().dataset(name)
    if kind.source == "path":
        raise DataError(f"--data {name}: a suite says where it lies, and there is none here; name another data set")
    dataset = kind.made()
    data = dataset.tensors(root)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.train_x), generator=generator)
    images, labels = data.train_x[order[:2000]].double(), data.train_y[order[:2000]]
    classes = dataset.found(root).classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(images[0].numel(), WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, classes),
        )
        for module in network[::2]:
            assert isinstance(module, nn.Linear)
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return Activations(name, images, labels, _train(network, data.train_x.flatten(1), data.train_y, generator))


def _train(network: nn.Sequential, x: Tensor, y: Tensor, generator: torch.Generator) -> dict[int, nn.Sequential]:
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    kept = {}
    for step in range(max(STEPS) + 1):
        if step in STEPS:
            kept[step] = deepcopy(network).double().requires_grad_(False)
        batch = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
    return kept
