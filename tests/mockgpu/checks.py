"""What is looked at under the mock, in a process of its own: ``python -m tests.mockgpu.checks NAME ARGUMENTS``.

Each function gives what ``json`` can write; the tests beside this file say what it should be.
"""

from __future__ import annotations

import ctypes
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from bnpbench.errors import NotApplicable, SuiteError
from bnpbench.execution.process import configure
from bnpbench.methods.base import MethodPlugin
from bnpbench.registry import built_in
from bnpbench.training import engines
from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer
from tests.support.training import cell

MOCK = ctypes.CDLL(None)
MOCK.mockgpu_events.restype = ctypes.c_char_p
DEVICE = torch.device("cuda")
ROWS = {"kind": "synthetic", "shape": (3, 32, 32), "train": 2048, "test": 50, "classes": 10}
IMAGES = {**ROWS, "train": 256}
NETWORKS: dict[str, dict[str, Any]] = {
    "fc": {"network": {"kind": "fc", "hidden": (100, 100)}, "dataset": ROWS, "batch_size": 256},  # of Table 1
    "cnn": {"network": {"kind": "cnn", "channels": (8, 8, 8), "dense": 20}, "dataset": IMAGES, "batch_size": 32},
    "resnet8": {"network": {"kind": "resnet", "depth": 8}, "dataset": IMAGES, "batch_size": 32},
}
VARIANTS: list[Any] = [
    {"kind": "bnp", "statistics": "batch"},
    {"kind": "bnp", "form": "plain"},
    {"kind": "bn", "input": True},
    {"kind": "4things", "ghost_batch": 8},
]


def methods() -> list[Any]:
    """Every method by its kind, and options that take another way."""
    return [*built_in().kinds(MethodPlugin), *VARIANTS]


@contextmanager
def events() -> Iterator[list[str]]:
    """What happens inside: ``work <kind> <name>``, ``sync``, ``malloc``, ``replay``, ``captured``, ``forbidden``."""
    found: list[str] = []
    MOCK.mockgpu_record(1)
    try:
        yield found
    finally:
        found += MOCK.mockgpu_events().decode().splitlines()
        MOCK.mockgpu_record(0)


def counted(found: list[str]) -> Counter[str]:
    """Kinds of work, and of whatever else happened."""
    return Counter(" ".join(line.split()[: 2 if line.startswith(("work", "sync")) else 1]) for line in found)


def made(network: str, method: Any, **changes: Any) -> Trainer:
    settings = {"device": "cuda", "optimizer": {"kind": "sgd", "lr": 0.1}, "method": method, **NETWORKS[network]}
    one = cell(**{**settings, **changes})
    configure(one.settings, 0)
    return Trainer(one, Resident(one.settings, Path(), DEVICE), DEVICE)


def without_compiler() -> None:
    """Compiling takes seconds: a graph is recorded around the eager step."""

    def fails(*_: Any) -> None:
        raise RuntimeError("compiling takes seconds")

    engines.compiled = fails


def steps(networks: list[str], chosen: list[Any] | None, engine: str, compiles: bool) -> list[dict[str, Any]]:
    """What preparing and a later step of each method on each network do."""
    if not compiles:
        without_compiler()
    found = []
    for network in networks:
        for method in chosen or methods():
            row: dict[str, Any] = {"network": network, "method": method}
            found.append(row)
            try:
                ours = made(network, method, engine=engine)
            except (NotApplicable, SuiteError) as error:
                row["not applicable"] = str(error)
                continue
            with events() as preparing, redirect_stderr(io.StringIO()):
                ours.prepare()
            size = ours.settings.batch_size
            first, second, third = list(
                ours.examples.training(torch.arange(3 * size) % len(ours.examples.labels), size, 0)
            )
            for batch in (first, second):
                ours.engine.call(*batch)
            with events() as stepping:
                ours.engine.call(*third)
            row |= {"active": ours.engine.active, "preparing": counted(preparing), "step": counted(stepping)}
    return found


if __name__ == "__main__":
    _, name, arguments = sys.argv
    print(json.dumps(globals()[name](*json.loads(arguments))))
