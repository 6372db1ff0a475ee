"""One cell in training, against a loop written by hand."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bnpbench.losses.base import LossPlugin
from bnpbench.measure.clock import CpuClock
from bnpbench.methods.foof import Foof
from bnpbench.training import engines, models
from bnpbench.training import trainer as trainers
from bnpbench.training.examples import Resident
from bnpbench.training.state import seed_for
from bnpbench.training.step import Step
from bnpbench.training.trainer import diverged
from tests.support.training import trainer, weights

METHODS = ["vanilla", "bn", "ln", "bnp"]


@pytest.mark.parametrize("method", METHODS)
def test_three_epochs_equal_a_loop_by_hand(method: str) -> None:
    ours = trainer(method=method)
    rows = [ours.epoch() for _ in range(3)]

    s, examples = ours.settings, ours.examples
    assert isinstance(examples, Resident)
    model = models.build_model(s, (12,), 5, torch.Generator().manual_seed(seed_for(1, "weights"))).train()
    bnp = models.preconditioner(s, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    order = torch.Generator().manual_seed(seed_for(1, "order"))
    for row in rows:
        losses, correct = [], 0
        permutation = torch.randperm(103, generator=order)
        for start in range(0, 100, 10):
            index = permutation[start : start + 10]
            optimizer.zero_grad()
            output = model(examples.images[index])
            loss = F.cross_entropy(output, examples.labels[index])
            loss.backward()
            if bnp:
                bnp.precondition()
            optimizer.step()
            losses.append(loss.item())
            correct += int((output.argmax(1) == examples.labels[index]).sum())
        assert row["train_loss"] == pytest.approx(sum(losses) / 10, rel=1e-5)
        assert row["train_accuracy"] == pytest.approx(correct / 100)
        assert (row["steps"], row["examples"]) == (10, 100)
    torch.testing.assert_close(weights(ours), torch.cat([p.detach().flatten() for p in model.parameters()]))
    model.eval()
    images, labels = (torch.cat(parts) for parts in zip(*examples.test(), strict=True))
    output = model(images)
    assert rows[-1]["test_loss"] == pytest.approx(F.cross_entropy(output, labels).item(), rel=1e-4)
    assert rows[-1]["test_accuracy"] == pytest.approx((output.argmax(1) == labels).double().mean().item())


class Capped(LossPlugin):
    """Trained on something else than its mean, and nothing known of smoothing."""

    kind: Literal["capped"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(output, labels, reduction="none")

    def mean(self, output: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        return self.of_each(output, labels).clamp(max=1.0).mean()


def test_a_loss_of_ones_own_need_not_know_of_smoothing() -> None:
    assert trainer(loss=Capped.made()).epoch()["train_loss"] <= 1.0


@pytest.mark.parametrize("method", ["vanilla", "bn", "bnp", "4things"])
def test_micro_batches_clipping_and_smoothing_equal_a_loop_by_hand(method: str) -> None:
    """Of 10 examples in 5 micro-batches: BN sees two rows at a time, BNP pools all; clipping comes after BNP."""
    changes: dict[str, Any] = {"accumulate": 5, "clip_norm": 0.05, "label_smoothing": 0.2}
    ours = trainer(method=method, weight_decay={"value": 0.1, "where": "l2"}, **changes)
    row = ours.epoch()
    s, examples = ours.settings, ours.examples
    assert isinstance(examples, Resident)
    model = models.build_model(s, (12,), 5, torch.Generator().manual_seed(seed_for(1, "weights"))).train()
    bnp, penalty = models.preconditioner(s, model), models.penalty(s, model)
    assert penalty is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    permutation = torch.randperm(103, generator=torch.Generator().manual_seed(seed_for(1, "order")))
    losses, clipped = [], 0
    for start in range(0, 100, 10):
        optimizer.zero_grad()
        for first in range(start, start + 10, 2):
            index = permutation[first : first + 2]
            logs = model(examples.images[index]).log_softmax(1)
            true = logs.gather(1, examples.labels[index].unsqueeze(1)).mean()
            loss = -0.8 * true - 0.2 * logs.mean()
            ((loss + penalty()) / 5).backward()
            losses.append(loss.item())
        if bnp:
            bnp.precondition()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))  # type: ignore[union-attr]
        clipped += norm > 0.05
        for parameter in model.parameters():
            parameter.grad *= min(0.05 / norm, 1.0)  # type: ignore[operator]
        optimizer.step()
    assert clipped >= 3
    assert row["train_loss"] == pytest.approx(sum(losses) / 50, rel=1e-5)
    torch.testing.assert_close(
        weights(ours), torch.cat([p.detach().flatten() for p in model.parameters()]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("method", "hidden"), [("vanilla", 9), ("bnp", 9), ("ln", 9), ("bnp", 1600)])
def test_micro_batches_do_what_the_whole_batch_does(method: str, hidden: int) -> None:
    """But for methods with statistics of a batch, which are then of a micro-batch. A wide layer is lean by itself."""
    network = {"kind": "fc", "hidden": (hidden, hidden)}
    whole, parts = (trainer(method=method, network=network, accumulate=parts) for parts in (1, 5))
    assert not (parts.bnp and parts.bnp.lean)  # type: ignore[attr-defined]
    one, other = whole.epoch(), parts.epoch()
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    assert one["train_accuracy"] == other["train_accuracy"]
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-4, atol=1e-5)


@pytest.mark.regression
@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_what_layers_draw_before_the_first_epoch_is_undone(engine: str) -> None:
    """So that dropout draws the same for every method, whatever its step took to be made ready."""
    ours = trainer(engine=engine)
    ours.model[0].register_forward_hook(lambda module, inputs, output: F.dropout(output))  # type: ignore[index]
    before = torch.get_rng_state()
    ours.warm_up(1)
    ours.prepare()
    assert torch.equal(torch.get_rng_state(), before)
    ours.epoch()
    assert engine == "compiled" or not torch.equal(torch.get_rng_state(), before)


def test_a_seed_gives_every_method_the_same_weights_and_order() -> None:
    found = [trainer(method=m, network={"kind": "fc", "hidden": (9,)}) for m in METHODS]
    layers = [[p for m in t.model.modules() if isinstance(m, torch.nn.Linear) for p in m.parameters()] for t in found]
    for other in layers[1:]:
        assert all(torch.equal(a, b) for a, b in zip(layers[0], other, strict=True))
    orders = [torch.randperm(50, generator=t.order) for t in found]
    assert all(torch.equal(orders[0], o) for o in orders)
    another = trainer(seed=2, network={"kind": "fc", "hidden": (9,)})
    assert not torch.equal(orders[0], torch.randperm(50, generator=another.order))
    assert not torch.equal(weights(found[0]), weights(another))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", [{"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.01}])
def test_warm_up_leaves_no_trace(method: str, optimizer: dict[str, Any]) -> None:
    warmed, cold = trainer(method=method, optimizer=optimizer), trainer(method=method, optimizer=optimizer)
    warmed.warm_up(2)
    assert torch.equal(weights(warmed), weights(cold))
    timeless = [{k: v for k, v in t.epoch().items() if "seconds" not in k} for t in (warmed, cold)]
    assert timeless[0] == timeless[1]
    assert torch.equal(weights(warmed), weights(cold))


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_size_that_leaves_one_example_trains(method: str) -> None:
    ours = trainer(method=method, batch_size=17)
    assert ours.last_batch == 1
    row = ours.epoch()
    assert (row["steps"], row["examples"]) == (6, 102)
    assert math.isfinite(row["train_loss"])


def test_divergence_is_seen() -> None:
    ours = trainer(optimizer={"kind": "sgd", "lr": 1e30})
    assert diverged(ours.epoch())
    assert not diverged(trainer().epoch())


def test_validation_examples_are_held_out_and_scored() -> None:
    ours = trainer(validation=0.2)
    held_out = ours.examples.validation()
    assert held_out is not None
    assert len(ours.examples.labels) + sum(len(labels) for _, labels in held_out) == 103
    assert 0 <= ours.epoch()["validation_accuracy"] <= 1


def test_times_come_from_the_clock() -> None:
    ticks = iter(range(1000))
    ours = trainer()
    ours.make_clock = lambda device, steps: CpuClock(steps, now=lambda: float(next(ticks)))
    row = ours.epoch()
    assert row["train_seconds"] == 11.0  # start, ten laps, stop: twelve looks at the clock
    assert row["step_seconds_median"] == 1.0
    assert row["step_seconds_p90"] == 1.0
    assert min(row["evaluation_seconds"], row["other_seconds"] + 11) > 0


@pytest.mark.regression
@pytest.mark.parametrize("wait", ["order", "begin_epoch", "examples"])
def test_only_steps_are_timed(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To draw the order of an epoch, and to copy it, was timed too: the same for all methods, it drew ratios to 1."""
    ours, time = trainer(), 0.0

    def slow(work: Any) -> Any:
        def waiting(*arguments: Any, **options: Any) -> Any:
            nonlocal time
            time += 1.0
            return work(*arguments, **options)

        return waiting

    ours.make_clock = lambda device, steps: CpuClock(steps, now=lambda: time)
    if wait == "order":
        monkeypatch.setattr(torch, "randperm", slow(torch.randperm))
    elif wait == "begin_epoch":
        monkeypatch.setattr(ours.step, "begin_epoch", slow(ours.step.begin_epoch))
    else:
        monkeypatch.setattr(ours.examples, "training", slow(ours.examples.training))
    assert ours.epoch()["train_seconds"] == 0.0
    assert time == 1.0


def test_a_schedule_sets_the_rate() -> None:
    ours = trainer(schedule={"kind": "steps", "epochs": (1,), "factor": 0.5})
    assert [round(ours.epoch()["learning_rate"], 6) for _ in range(2)] == [0.1, 0.05]
    assert ours.lr.item() == pytest.approx(0.05)


@pytest.mark.parametrize("engine", ["eager", "graphed"])
def test_kernels_are_those_of_a_step_without_a_refresh(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = trainer(method={"kind": "foof", "every": 10}, engine="eager")
    if engine == "graphed":  # its two programs, each run operator by operator
        ours.engine = engines.in_turns(in_its_turn, ours.step, ())
    refreshed = []
    refresh = Foof.refresh
    monkeypatch.setattr(Foof, "refresh", lambda *args: (refreshed.append(1), refresh(*args)))
    monkeypatch.setattr(trainers, "kernels_of", lambda work: (work(), len(refreshed))[1])
    ours.epoch()  # ten steps: the next one has a refresh
    assert ours.bnp.refreshes()
    refreshed.clear()
    ours.device = torch.device("cuda")
    assert ours.kernels() == 0
    assert ours.bnp.refreshes()


def in_its_turn(step: Step, sample: tuple[torch.Tensor, ...]) -> engines.Preparation:
    """A program is made of the step as it is at this moment."""
    rewriter = step.bnp
    kind = rewriter.refreshes()

    def call(*arguments: torch.Tensor) -> None:
        with rewriter.turn(kind):
            step(*arguments)

    return engines.Preparation(call, "recorded")


@pytest.mark.regression
def test_a_network_that_writes_to_the_test_images_says_so() -> None:
    """In training it reads copies, but each evaluation was on what the one before it had left."""
    one = trainer()
    one.model = torch.nn.Sequential(torch.nn.LeakyReLU(inplace=True), one.model)
    with pytest.raises(
        ValueError, match=r"^fully_connected\.py: FullyConnected writes to images, .*images\.clone\(\)$"
    ):
        one.epoch()
