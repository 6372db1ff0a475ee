"""What an epoch of bnpbench costs beside a bare loop, and beside a DataLoader loop.

    python tests/benchmarks/epoch_overhead.py DATA [--batch-size 16] [--rounds 7] [--examples 50000]

Vanilla 3072-100-100-10 on CIFAR-10, SGD, one thread. The bare loop is the least that trains: resident
tensors, one permutation, fused SGD, the loss accumulated on the device. The DataLoader loop is what
a PyTorch tutorial does: torchvision's CIFAR10 with ToTensor, shuffled, no workers. The three run in turn,
A B C C B A; ratios are of neighbouring runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets as tv
from torchvision import transforms

from bnpbench.suite import Cell, Settings
from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3072, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))


def bare(examples: Resident, batch: int):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01), fused=True)
    images, labels = examples.images, examples.labels
    steps = len(labels) // batch

    def epoch() -> float:
        begin = time.perf_counter()
        total = torch.zeros(())
        for index in torch.randperm(len(labels))[: steps * batch].view(steps, batch).unbind():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.index_select(0, index)), labels.index_select(0, index))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return time.perf_counter() - begin

    return epoch


def loader(root: Path, batch: int, examples: int):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = tv.CIFAR10(root, transform=transforms.ToTensor())
    data.data, data.targets = data.data[:examples], data.targets[:examples]
    batches = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)

    def epoch() -> float:
        begin = time.perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.flatten(1)), labels)
            loss.backward()
            optimizer.step()
        return time.perf_counter() - begin

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--examples", type=int, default=50_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings.model_validate(
        {
            "dataset": "cifar10",
            "network": {"kind": "fc", "hidden": (100, 100)},
            "method": "vanilla",
            "optimizer": {"kind": "sgd", "lr": 0.01},
            "batch_size": options.batch_size,
            "epochs": 1,
            "train_limit": options.examples,
            "device": "cpu",
            "engine": "eager",
            "threads": 1,
        }
    )
    examples = Resident(settings, options.data, torch.device("cpu"))
    trainer = Trainer(Cell(settings), examples, torch.device("cpu"))
    runs = {
        "bnpbench": lambda: trainer.epoch()["train_seconds"],
        "bare": bare(examples, options.batch_size),
        "loader": loader(options.data, options.batch_size, options.examples),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        order = list(runs) if number % 2 else list(reversed(runs))
        for name in order:
            measured = runs[name]()
            if number:  # the first round warms up
                seconds[name].append(measured)
    ours = seconds.pop("bnpbench")
    print(f"bnpbench  {median(ours):8.3f} s an epoch")
    for name, values in seconds.items():
        ratios = [one / other for one, other in zip(ours, values, strict=True)]
        print(
            f"{name:9} {median(values):8.3f} s an epoch; bnpbench / {name}: "
            f"median {median(ratios):.3f}, range {min(ratios):.3f} to {max(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
