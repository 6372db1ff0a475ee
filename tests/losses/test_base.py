"""A loss of a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from bnpbench.losses.base import LossPlugin
from bnpbench.training.accounting import costs
from tests.support.training import trainer


class Squares(LossPlugin):
    kind: Literal["squares"]
    weight: float = 1.0

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return self.weight * (output - torch.eye(output.shape[1], device=output.device)[labels]).square().sum(1)


@pytest.mark.parametrize("method", ["vanilla", "bnp"])
def test_another_loss_is_trained_on_and_tested_by(method: str) -> None:
    """Three steps and a test by hand."""
    one = trainer(method=method, loss=Squares.made(weight=0.5), optimizer={"kind": "sgd", "lr": 0.01})
    two = trainer(method=method, loss=Squares.made(weight=0.5), optimizer={"kind": "sgd", "lr": 0.01})
    order = torch.randperm(len(one.examples.labels), generator=two.order)
    row, losses = one.epoch(), list[float]()
    for start in range(0, one.steps * 10, 10):
        images, labels = two.step.gather(order[start : start + 10])
        two.model.zero_grad()
        loss = 0.5 * (two.model(images) - torch.nn.functional.one_hot(labels, 5)).square().sum(1).mean()
        loss.backward()
        two.step.precondition()
        two.step.optimizer.step()
        losses.append(loss.item())
    assert row["train_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    images, labels = (torch.cat(parts) for parts in zip(*one.examples.test(), strict=True))
    with torch.no_grad():
        away = one.model.eval()(images) - torch.nn.functional.one_hot(labels, 5)
    assert row["test_loss"] == pytest.approx(0.5 * away.square().sum(1).mean().item(), rel=1e-5)


def test_its_costs_are_counted() -> None:
    ours, plain = (trainer(**changes).settings for changes in ({"loss": Squares.made()}, dict[str, Any]()))
    found = [costs(one, (12,), 5).columns for one in (ours, plain)]
    assert found[0].operators_per_step != found[1].operators_per_step
    assert found[0].flops_model == found[1].flops_model


class Whole(LossPlugin):
    kind: Literal["whole"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return (output - labels[:, None]).square().mean()


def test_a_loss_that_is_not_one_value_a_label_says_so() -> None:
    with pytest.raises(ValueError, match=r"Whole.of_each gives \(\), not one value a label, \(2,\)"):
        Whole.made().mean(torch.ones(2, 3), torch.tensor([0, 2]))


class Mute(LossPlugin):
    kind: Literal["mute"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


@pytest.mark.regression
def test_a_loss_that_returns_nothing_says_so() -> None:
    with pytest.raises(ValueError, match=r"test_base.py: Mute.of_each gives None, not one value a label, \(2,\)"):
        Mute.made().total(torch.ones(2, 3), torch.tensor([0, 2]))


class Writer(Squares):
    kind: Literal["writer"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return super().of_each(output.softmax(1).mul_(2), labels) + output.mul_(0)[:, 0]


@pytest.mark.regression
def test_a_loss_that_writes_to_what_it_reads_says_so() -> None:
    """The accuracy of the same output was another."""
    one = trainer(loss=Writer.made())
    with pytest.raises(ValueError, match=r"test_base\.py: Writer writes to output, .*; write to output\.clone\(\)"):
        one.evaluate(one.examples.test())


# --- what a suite says -------------------------------------------------------------------------

PLUGIN = """
from typing import Literal
from bnpbench import LossPlugin


class Squares(LossPlugin):
    kind: Literal["squares"]

    def of_each(self, output, labels):
        return output.square().sum(1)
"""
SUITE = """
name = "squares"
plugins = ["squares.py"]
[train]
dataset = "digits"
network = { kind = "fc", hidden = [4] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 60
epochs = 1
loss = "squares"
"""


@pytest.mark.parametrize(
    ("more", "place", "words"),
    [
        ("label_smoothing = 0.1\n", "train.label_smoothing", "squares takes no share of a label away"),
        ('[probe]\nlayer = "output"\n', "train.loss", "Hessian of the cross-entropy, not of squares"),
    ],
)
def test_what_only_cross_entropy_has_is_refused(more: str, place: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text(PLUGIN)
    suite, _, probe = (SUITE + more).partition("[probe]")
    text = f'{suite}\n[sweep]\nmethod = ["vanilla"]\n{"[probe]" if probe else ""}{probe}'
    (tmp_path / "squares.toml").write_text(text)
    with pytest.raises(SuiteError, match=words) as error:
        load_suite(tmp_path / "squares.toml", allow_plugins=True)
    assert error.value.key == place
