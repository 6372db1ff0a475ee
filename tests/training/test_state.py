"""What a training carries from step to step: put back, kept and read again."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from bnpbench.training.state import DamagedState, load, random_state, save, set_random_state
from tests.support.others import NEEDS_OPTIMIZERS
from tests.support.training import trainer, weights

OPTIMIZERS = [{"kind": "sgd", "lr": 0.1}, {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.1}]


STEPS = {"kind": "steps", "epochs": (1,)}


@pytest.mark.regression
@pytest.mark.parametrize("warmup_epochs", [0, 1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_the_schedule_reaches_the_optimizer(optimizer: dict[str, Any], warmup_epochs: int) -> None:
    """Undoing the warm-up left the optimizer with a copy of the learning rate, and no schedule reached it any more:
    with SGD without momentum always, with the others where there was no warm-up epoch to build their state."""
    ours = trainer(optimizer=optimizer, schedule=STEPS)
    ours.warm_up(warmup_epochs)
    assert all(group["lr"] is ours.lr for group in ours.step.optimizer.param_groups)


@pytest.mark.regression
def test_the_rate_that_is_told_is_the_one_that_trains() -> None:
    """The column of learning rates came from the schedule, and showed nothing of it."""
    steady, falling = (trainer(schedule=schedule) for schedule in ("constant", STEPS))
    rows = []
    for ours in (steady, falling):
        ours.prepare()
        ours.warm_up(1)
        rows.append([ours.epoch() for _ in range(2)])
    (first, second), (same, other) = rows
    assert first["train_loss"] == same["train_loss"]  # one epoch at the same rate
    assert second["train_loss"] != other["train_loss"]
    assert [row["learning_rate"] for row in (second, other)] == pytest.approx([0.1, 0.01])


NUMBERS = 227  # of the network with layers of 12, 9, 7 and 5 and their biases
SQUARES = 12**2 + 9**2 + 9**2 + 7**2 + 7**2 + 5**2  # entries of a matrix for each side of each weight
MATRICES = 9 * 12 + 7 * 9  # of the hidden layers, which Muon serves
KEPT = {
    "sgd": ({"kind": "sgd", "lr": 0.1}, 0),
    "momentum": ({"kind": "sgd", "lr": 0.1, "momentum": 0.9}, NUMBERS),
    "adam": ({"kind": "adam"}, 2 * NUMBERS + 6),  # and the number of steps of each of six parameters
    "muon": ({"kind": "muon"}, MATRICES + 2 * (NUMBERS - MATRICES) + 4),
    "shampoo": ({"kind": "shampoo"}, NUMBERS + 2 * (SQUARES + 9**2 + 7**2 + 5**2)),
    "soap": ({"kind": "soap"}, 2 * NUMBERS + 2 * SQUARES),
    "kron": ({"kind": "kron"}, NUMBERS + SQUARES + 9 + 7 + 5),
}
"""Options of optimizers, and how many numbers of four bytes they keep."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_OPTIMIZERS if name in ("shampoo", "soap", "kron") else ()) for name in KEPT]
)
def test_what_an_optimizer_keeps_is_counted_in_bytes(name: str) -> None:
    optimizer, numbers = KEPT[name]
    ours = trainer(optimizer=optimizer)
    assert ours.state.optimizer_bytes == 0
    ours.epoch()
    assert ours.state.optimizer_bytes == 4 * numbers


def test_what_an_optimizer_keeps_under_two_names_is_counted_once() -> None:
    ours = trainer()
    ours.epoch()
    for state in ours.step.optimizer.state.values():
        state["again"] = {"turned": (state["momentum_buffer"].T if state["momentum_buffer"].dim() > 1 else None, 1.0)}
    assert ours.state.optimizer_bytes == 4 * NUMBERS


METHODS = ["vanilla", "bn", "ln", "bnp"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", [{"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.01}])
def test_a_checkpoint_continues_bit_for_bit(method: str, optimizer: dict[str, Any], tmp_path: Any) -> None:
    undisturbed = trainer(method=method, optimizer=optimizer)
    undisturbed.epoch()
    save({"state": undisturbed.state.snapshot()}, tmp_path / "x.pt", tmp_path / ".x.tmp")
    undisturbed.epoch()

    resumed = trainer(method=method, optimizer=optimizer)
    resumed.warm_up(1)
    taken = load(tmp_path / "x.pt")
    assert taken is not None
    resumed.state.restore(taken["state"])
    resumed.epochs_done = 1
    resumed.epoch()
    assert torch.equal(weights(resumed), weights(undisturbed))
    for ours, theirs in zip(resumed.model.buffers(), undisturbed.model.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("method", ["vanilla", "bnp"])
@pytest.mark.parametrize(
    "optimizer",
    [
        {"kind": "muon"},
        pytest.param({"kind": "kron"}, marks=NEEDS_OPTIMIZERS),
        pytest.param({"kind": "shampoo", "every": 4}, marks=NEEDS_OPTIMIZERS),
        pytest.param({"kind": "soap", "every": 3}, marks=NEEDS_OPTIMIZERS),
    ],
    ids=str,
)
def test_counters_and_matrices_of_an_optimizer_are_gone_on_from(
    method: str, optimizer: dict[str, Any], tmp_path: Any
) -> None:
    """After a warm-up that is undone, in another process's random streams, with a step of the rate behind it."""
    changes = {"method": method, "optimizer": optimizer, "schedule": STEPS, "weight_decay": 0.01}
    undisturbed, resumed = trainer(**changes), trainer(**changes)
    undisturbed.epoch()
    content = {"state": undisturbed.state.snapshot(), "random": random_state()}
    save(content, tmp_path / "x.pt", tmp_path / ".x.tmp")
    second = undisturbed.epoch()
    resumed.prepare()
    resumed.warm_up(1)
    taken = load(tmp_path / "x.pt", resumed.state.most_bytes)
    assert taken is not None
    set_random_state(taken["random"])
    resumed.state.resume_from(taken["state"])
    resumed.epochs_done = 1
    assert resumed.epoch()["train_loss"] == second["train_loss"]
    assert torch.equal(weights(resumed), weights(undisturbed))


@pytest.mark.parametrize(
    "optimizer",
    [
        {"kind": "muon"},
        pytest.param({"kind": "kron"}, marks=NEEDS_OPTIMIZERS),
        pytest.param({"kind": "shampoo"}, marks=NEEDS_OPTIMIZERS),
        pytest.param({"kind": "soap"}, marks=NEEDS_OPTIMIZERS),
    ],
    ids=str,
)
def test_a_warm_up_is_undone_whatever_the_optimizer_keeps(optimizer: dict[str, Any]) -> None:
    """Factors that begin as the identity are not a fresh start when they are zero."""
    plain = trainer(optimizer=optimizer).epoch()["train_loss"]
    warmed = trainer(optimizer=optimizer)
    warmed.warm_up(1)
    assert warmed.epoch()["train_loss"] == plain


def test_no_bit_of_a_checkpoint_may_change(tmp_path: Any) -> None:
    """torch reads a flipped bit of a weight as another weight: every later epoch was another, and the status ok."""
    path = tmp_path / "x.pt"
    assert load(path) is None
    weights = torch.linspace(0, 1, 50)
    save({"weights": weights}, path, tmp_path / ".x.tmp")
    assert sorted(tmp_path.iterdir()) == [path]
    content = load(path)
    assert content is not None
    assert torch.equal(content["weights"], weights)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedState, match="checksum"):
            load(path)
    for damaged in (b"", whole[:-1], whole[:20], b"PK\x03\x04 not a checkpoint"):
        path.write_bytes(damaged)
        with pytest.raises(DamagedState, match="checksum"):
            load(path)
    save([1], path, tmp_path / ".x.tmp")  # type: ignore[arg-type]
    with pytest.raises(DamagedState, match="a list"):
        load(path)
    os.truncate(path, 2**42)  # a file of holes, which takes no room on the disk
    with pytest.raises(DamagedState, match="4398046511104 bytes, more than the 1073741824 that are read"):
        load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedState, match="not a regular file"):
        load(path)
