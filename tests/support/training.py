"""A small cell, and its trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bnpbench.suite import Cell, Settings
from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer

CPU = torch.device("cpu")


def cell(**changes: Any) -> Cell:
    settings = {
        "dataset": {"kind": "synthetic", "shape": (12,), "train": 103, "test": 41, "classes": 5},
        "network": {"kind": "fc", "hidden": (9, 7)},
        "method": "vanilla",
        "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
        "batch_size": 10,
        "epochs": 3,
        "device": "cpu",
        "engine": "eager",
        "threads": 1,
    }
    return Cell(Settings.model_validate(settings | changes))


def trainer(**changes: Any) -> Trainer:
    one = cell(**changes)
    return Trainer(one, Resident(one.settings, Path(), CPU), CPU)


def weights(trained: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])
