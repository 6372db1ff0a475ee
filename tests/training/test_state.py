"""What a training carries from step to step: put back, kept and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite, run_suite
from tests.support.command import SUITE, suite
from tests.support.training import trainer

OPTIMIZERS = [{"kind": "sgd", "lr": 0.1}, {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.1}]


STEPS = {"kind": "steps", "epochs": (1,)}


@pytest.mark.regression
@pytest.mark.parametrize("warmup_epochs", [0, 1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_the_schedule_reaches_the_optimizer(optimizer: dict[str, Any], warmup_epochs: int) -> None:
    ours = trainer(optimizer=optimizer, schedule=STEPS)
    ours.warm_up(warmup_epochs)
    assert all(group["lr"] is ours.lr for group in ours.step.optimizer.param_groups)


@pytest.mark.regression
def test_a_run_follows_its_schedule(tmp_path: Path) -> None:
    schedules = 'method = ["vanilla"]\nschedule = ["constant", { kind = "steps", epochs = [1] }]'
    text = SUITE.replace('method = ["vanilla", "bnp"]', schedules).replace("seed = [1, 2]", "seed = [1]")
    results = run_suite(load_suite(suite(tmp_path, text.replace("epochs = 2", "epochs = 3"))), tmp_path / "out")
    losses, rates = (
        results.epochs.pivot(index="key", columns="epoch", values=column) for column in ("train_loss", "learning_rate")
    )
    assert losses[1].nunique() == 1  # one epoch at the same rate
    assert losses[2].nunique() == 2
    assert sorted(rates[2]) == pytest.approx([0.01, 0.1])
