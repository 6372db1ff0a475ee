"""No engine changes a result: each against the eager one, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bnpbench.training import engines
from bnpbench.training.trainer import Trainer
from tests.recorder import Recorder
from tests.training.test_trainer import trainer, weights

SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.9}
ADAM = {"kind": "adam", "lr": 0.01}
METHODS = ["vanilla", "bn", "bn-pre", "renorm", "ln", "4things", "bnp", {"kind": "bnp", "statistics": "batch"}]
IMAGES = {"dataset": {"kind": "synthetic", "shape": (3, 20, 20), "train": 103, "test": 41, "classes": 5}}
WARMED = {"kind": "steps", "epochs": (1,), "warmup": {"kind": "linear", "start": 0.01, "iterations": 7}}


def recorded(work: Callable[[], Any]) -> Callable[[], None]:
    work()
    recorder = Recorder()
    with recorder:
        work()
    return recorder.replay


def graphed(**changes: Any) -> Trainer:
    """A trainer whose step is recorded and replayed, as a CUDA graph is."""
    ours = trainer(**changes)
    sample = next(iter(ours.examples.training(torch.arange(10), 10, 0)))
    before = ours.state.take()
    ours.engine = engines.captured(ours.step, sample, recorded)
    ours.state.put_back(before)
    return ours


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=lambda o: o["kind"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_recorded_step_equals_the_eager_one_to_the_bit(method: Any, optimizer: dict[str, Any]) -> None:
    changes = {"method": method, "optimizer": optimizer, "schedule": WARMED}
    eager, replayed = trainer(**changes), graphed(**changes)
    for _ in range(2):
        rows = [t.epoch() for t in (eager, replayed)]
        timeless = [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
        assert timeless[0] == timeless[1]
    assert torch.equal(weights(eager), weights(replayed))
    for ours, theirs in zip(replayed.model.buffers(), eager.model.buffers(), strict=True):
        assert torch.equal(ours, theirs)


NETWORKS: dict[str, dict[str, Any]] = {
    "fc": {},  # of the trainer's default: the lean form costs more there
    "wide": {"network": {"kind": "fc", "hidden": (300, 200)}},  # the lean form costs less in the hidden layers
    "cnn": {"network": {"kind": "cnn", "channels": (4, 6, 4), "dense": 8}, **IMAGES},
    "resnet": {"network": {"kind": "resnet", "depth": 8}, **IMAGES},
}
COMPILED = [
    *(("fc", method, SGD) for method in METHODS),
    *(("wide", method, ADAM) for method in ("bnp", "bn")),
    *(("cnn", method, SGD) for method in ("vanilla", "bn", "bnp", "renorm", "4things")),
    *(("resnet", method, SGD) for method in ("bn", "gn", "bnp+gn")),
]


@pytest.mark.parametrize(("network", "method", "optimizer"), COMPILED, ids=str)
def test_a_compiled_step_equals_the_eager_one(network: str, method: Any, optimizer: dict[str, Any]) -> None:
    torch._dynamo.reset()
    changes = {"method": method, "optimizer": optimizer, **NETWORKS[network]}
    eager, compiled = trainer(**changes), trainer(engine="compiled", **changes)
    start = weights(compiled)
    compiled.prepare()
    assert compiled.engine.active == "compiled"
    assert torch.equal(weights(compiled), start)  # tracing and compiling left no trace
    batches = list(eager.examples.training(torch.randperm(100), 10, 0))
    for batch in batches:
        compiled.state.put_back(eager.state.take())
        for one in (eager, compiled):
            one.step.loss_sum.zero_()
            one.engine.call(*batch)
        torch.testing.assert_close(weights(compiled), weights(eager), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(compiled.step.loss_sum, eager.step.loss_sum, rtol=1e-5, atol=0.0)
        for ours, theirs in zip(compiled.model.buffers(), eager.model.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        if eager.bnp and compiled.bnp:
            torch.testing.assert_close(compiled.bnp.state_dict(), eager.bnp.state_dict(), rtol=1e-5, atol=1e-6)
