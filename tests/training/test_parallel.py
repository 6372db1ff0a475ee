"""Two Gloo ranks: what they do together is what one device does with the whole batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from bnpbench.methods.vanilla import Vanilla
from bnpbench.records.rows import EpochRow
from bnpbench.suite import Cell, Settings
from bnpbench.training.examples import Resident
from bnpbench.training.parallel import Group
from bnpbench.training.trainer import Trainer
from tests.support.ranks import together as start

CPU = torch.device("cpu")
RANKS = 2
STATES = 10
BETWEEN = 2  # steps from one state to the next
METHODS: dict[str, Any] = {
    "vanilla": "vanilla",
    "bnp": "bnp",
    "bnp on the batch's statistics": {"kind": "bnp", "statistics": "batch"},
    "bnp+gn": {"kind": "bnp+gn", "channels_per_group": 3},
    "bn": "bn",
    "foof": {"kind": "foof", "every": 2},
    "bnp-full": {"kind": "bnp-full", "every": 2},
    "bn-pre with averages": {"kind": "bn-pre", "inference": "averaged"},
    "kfac of all labels": {"kind": "kfac", "fisher": "exact", "damping": 1.0, "every": 2},
    "kfac of the data's labels": {"kind": "kfac", "fisher": "empirical", "damping": 1.0, "every": 2},
    "eva": {"kind": "eva", "damping": 1.0},
}
NETWORKS: dict[str, Any] = {
    "fc": {
        "network": {"kind": "fc", "hidden": (9, 6)},
        "dataset": {"kind": "synthetic", "shape": (1, 8, 8), "train": 300, "test": 20},
    },
    "cnn": {
        "network": {"kind": "cnn", "channels": (3, 6, 3), "dense": 6},
        "dataset": {"kind": "synthetic", "shape": (1, 18, 18), "train": 300, "test": 20, "classes": 4},
    },
}
BATCHES = (6, 5, 3)  # the last two do not divide: one rank of the last holds a single example
NAMED = ("vanilla", "bnp", "bnp+gn", "bn")
CASES = [
    *[("float64", "fc", method, batch) for method in NAMED for batch in BATCHES],
    *[("float64", "fc", method, 5) for method in METHODS if method not in NAMED],
    *[("float64", "cnn", method, 5) for method in METHODS],
    *[("float32", "fc", method, 5) for method in NAMED],
]
SAME_DATA = {"method": Vanilla(kind="vanilla"), "batch_size": 1, "devices": 1, "augment": "none"}
Case = tuple[str, str, str, int]


def settings(case: Case, devices: int, **changes: Any) -> Settings:
    _, network, method, batch = case
    told = {
        **NETWORKS[network],
        "method": METHODS[method],
        "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
        "weight_decay": {"value": 1e-2, "where": "l2"},
        "batch_size": batch,
        "epochs": 2,
        "device": "cpu",
        "engine": "eager",
        "threads": 1,
        "devices": devices,
    }
    return Settings.model_validate(told | changes)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    torch.set_default_dtype(getattr(torch, dtype))
    yield
    torch.set_default_dtype(torch.float32)


def trainer(case: Case, devices: int, rank: int = 0, **changes: Any) -> Trainer:
    """Of one device, or of one rank; in the case's precision, which the data follow."""
    one = settings(case, devices, **changes)
    return Trainer(Cell(one), data(one.model_copy(update=SAME_DATA), case[0]), CPU, group=Group(CPU, rank, devices))


@cache
def data(one: Settings, dtype: str) -> Resident:
    """What cells share that read the same examples."""
    examples = Resident(one, Path(), CPU)
    examples.images = examples.images.to(getattr(torch, dtype))
    return examples


def order(made: Trainer) -> Tensor:
    """The batches of a run, (steps, batch size)."""
    batch, count = made.settings.batch_size, STATES * (BETWEEN + 1)
    generator = torch.Generator().manual_seed(5)
    return torch.randint(len(made.examples.labels), (count, batch), generator=generator)


def steps_of_one_device(case: Case) -> list[dict[str, Any]]:
    """Ten states along a run, and each with what the next step makes of it."""
    found = []
    with precision(case[0]):
        one = trainer(case, devices=1)
        for batches in order(one).split(BETWEEN + 1):
            for batch in batches[:-1]:
                one.step(batch)
            before = one.state.snapshot()
            one.step.loss_sum.zero_()
            one.step(batches[-1])
            found.append({"before": before, "after": one.state.snapshot(), "loss": one.step.loss_sum.clone()})
    return found


def steps_of_two(case: Case, rank: int, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same steps, from the same states."""
    found = []
    with precision(case[0]):
        mine = trainer(case, RANKS, rank)
        part = mine.group.share(mine.settings.batch_size)
        for state, batches in zip(states, order(mine).split(BETWEEN + 1), strict=True):
            mine.state.restore(state["before"])
            mine.step.loss_sum.zero_()
            mine.step(batches[-1][part])
            loss = mine.group.total(mine.step.loss_sum.item())[0] / RANKS
            found.append({"after": mine.state.snapshot(), "loss": torch.tensor(loss, dtype=torch.float64)})
    return found


EPOCHS: list[dict[str, Any]] = [
    {"method": "bnp", "train_limit": 203, "metrics": ({"kind": "top-k", "k": 2},)},
    {"method": "bn", "validation": 0.1, "train_limit": 60},
    {"method": "vanilla", "network": {"kind": "resnet", "depth": 8}, "augment": "crop-flip", "train_limit": 40},
]


def rows(devices: int, rank: int, changes: dict[str, Any]) -> list[EpochRow]:
    made = trainer(("float32", "fc", "vanilla", 7), devices, rank, **changes)
    made.prepare()
    return [made.epoch() for _ in range(2)]


def run(rank: int, folder: str) -> None:
    """What one rank does for all tests of this file: the start of the processes is what takes the time."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store, timeout = f"file://{folder}/store", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=timeout)
    states = torch.load(f"{folder}/states.pt", weights_only=False)
    found = {case: steps_of_two(case, rank, states[case]) for case in CASES}
    per_device = trainer(("float32", "fc", "vanilla", 7), RANKS, rank, method={"kind": "bn", "sync": False})
    for batch in order(per_device):
        per_device.step(batch[per_device.group.share(7)])
    epochs = [rows(RANKS, rank, changes) for changes in EPOCHS]
    torch.save(
        {"steps": found, "per device": per_device.state.snapshot()["model"], "epochs": epochs}, f"{folder}/{rank}.pt"
    )
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Case, Any], list[dict[str, Any]]]:
    """What one device did, and what each of two ranks did."""
    folder = tmp_path_factory.mktemp("ranks")
    states = {case: steps_of_one_device(case) for case in CASES}
    torch.save(states, folder / "states.pt")
    start(run, RANKS, str(folder))
    return states, [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]


def difference(one: Tensor, other: Tensor) -> float:
    """Relative to the norm of ``one``, unless that is all rounding, as of a bias in front of a normalization."""
    return float((other.double() - one.double()).norm() / one.double().norm().clamp(min=1e-2))


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{name}.{key}")
        elif value is not None:
            yield f"{name}.{key}", torch.as_tensor(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_step_from_each_of_ten_states(case: Case, together: tuple[dict[Case, Any], list[dict[str, Any]]]) -> None:
    """Weights, moments (which hold the gradient), and the statistics of BN and BNP, on both ranks."""
    states, ranks = together
    tolerance = 1e-5 if case[0] == "float32" else 1e-10
    for number, one in enumerate(states[case]):
        assert any(
            difference(b, a) > 1e-3 for (_, b), (_, a) in zip(leaves(one["before"]), leaves(one["after"]), strict=False)
        )
        for rank in ranks:
            two = rank["steps"][case][number]
            assert difference(one["loss"], two["loss"]) < tolerance
            for (name, expected), (_, found) in zip(leaves(one["after"]), leaves(two["after"]), strict=True):
                assert difference(expected, found) < tolerance, (number, name)


def test_per_device_statistics_are_each_devices_own(together: tuple[dict[Case, Any], list[dict[str, Any]]]) -> None:
    """The weights stay equal, the running statistics do not."""
    first, second = (rank["per device"] for rank in together[1])
    for name, value in first.items():
        assert value.equal(second[name]) == ("running" not in name), name


@pytest.mark.parametrize("number", range(len(EPOCHS)))
def test_epochs_and_their_rows(number: int, together: tuple[dict[Case, Any], list[dict[str, Any]]]) -> None:
    """Losses, accuracies, metrics and counts, the same on both ranks and as on one device, augmentation included."""
    ranks = [rank["epochs"][number] for rank in together[1]]
    for one, *both in zip(rows(1, 0, EPOCHS[number]), *ranks, strict=True):
        for name, value in one.items():
            for row in both:
                if "seconds" not in name and value is not None:
                    assert row[name] == (value if name == "metrics" else pytest.approx(value, rel=1e-4)), name


@pytest.mark.parametrize(("batch", "ranks"), [(8, 2), (7, 2), (5, 3), (3, 3), (256, 512 // 3)])
def test_every_example_of_a_batch_has_one_rank(batch: int, ranks: int) -> None:
    shares = [Group(CPU, rank, ranks).share(batch) for rank in range(ranks)]
    assert [i for share in shares for i in range(batch)[share]] == list(range(batch))
    sizes = {share.stop - share.start for share in shares}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
