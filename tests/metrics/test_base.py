"""Metrics beside loss and accuracy: of a user's own, from the batches of the test set to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from bnpbench import load_suite, read_results, run_suite
from bnpbench.errors import SuiteError
from bnpbench.execution.block import checked_rows
from bnpbench.metrics.base import MetricPlugin
from bnpbench.report import figures, render
from bnpbench.report.compare import compare
from bnpbench.report.data import views
from bnpbench.report.verdicts import verdicts
from bnpbench.suite import Cell, Settings
from bnpbench.training.accounting import costs
from tests.support.made_results import Made, epochs
from tests.support.training import cell, trainer


class Mean(MetricPlugin):
    kind: Literal["mean"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return output[:, 0]


class Confusion(MetricPlugin):
    """The mean F1 of classes, from a matrix of counts."""

    better: ClassVar[Literal["higher", "lower"]] = "lower"
    kind: Literal["confusion"]
    classes: int = 5

    def sums(self, output: Tensor, labels: Tensor) -> Tensor:
        counts = torch.bincount(labels * self.classes + output.argmax(1), minlength=self.classes**2)
        return counts.view(self.classes, self.classes)

    def value(self, sums: Tensor) -> Tensor:
        return 1 - (2 * sums.diag() / (sums.sum(0) + sums.sum(1)).clamp(min=1)).mean()


def over(metric: MetricPlugin, output: Tensor, labels: Tensor, size: int) -> float:
    """The metric of examples in batches of ``size``."""
    total = None
    for batch in zip(output.split(size), labels.split(size), strict=True):
        total = metric.added(total, *batch)
    assert total is not None
    return float(metric.value(total))


@pytest.mark.parametrize("size", [1, 7, 41])
def test_a_mean_is_that_of_all_labels_in_float64(size: int) -> None:
    """Sums of float32 would lose the small ones."""
    output = torch.cat((torch.tensor([3e7]), torch.arange(40.0))).unsqueeze(1)
    assert over(Mean.made(), output, torch.zeros(41, dtype=torch.int64), size) == (3e7 + 780) / 41


@pytest.mark.parametrize("size", [1, 7, 41])
def test_sums_of_any_shape_become_a_value(size: int) -> None:
    torch.manual_seed(0)
    output, labels = torch.randn(41, 5), torch.randint(5, (41,))
    found, truth = output.argmax(1).numpy(), labels.numpy()
    hits = [((found == c) & (truth == c)).sum() for c in range(5)]
    both = [(found == c).sum() + (truth == c).sum() for c in range(5)]
    expected = 1 - np.mean([2 * h / b for h, b in zip(hits, both, strict=True)])
    assert over(Confusion.made(), output, labels, size) == pytest.approx(expected, rel=1e-15)


class Whole(MetricPlugin):
    kind: Literal["whole"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return output.mean()


class Rows(MetricPlugin):
    kind: Literal["rows"]

    def sums(self, output: Tensor, labels: Tensor) -> Tensor:
        return output[:, 0]


class Nothing(MetricPlugin):
    kind: Literal["nothing"]


def test_what_is_no_sum_says_so() -> None:
    output, labels = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"Whole.of_each gives \(\), not one value a label, \(2,\)"):
        over(Whole.made(), output, labels, 2)
    with pytest.raises(ValueError, match=r"Rows.sums gives \(1,\) after \(3,\): one shape is needed"):
        over(Rows.made(), output, labels, 3)
    with pytest.raises(NotImplementedError, match="Nothing defines neither of_each"):
        over(Nothing.made(), output, labels, 4)


class Given(Rows):
    """Sums and value as they are given."""

    kind: Literal["given"]
    summed: Any = None
    valued: Any = None

    def sums(self, output: Tensor, labels: Tensor) -> Tensor:
        return torch.ones(2) if self.summed is None else self.summed

    def value(self, sums: Tensor) -> Tensor | float:
        return super().value(sums) if self.valued is None else self.valued()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valued": lambda: torch.zeros(3)}, "Given.value gives a tensor of shape (3,), not one number"),
        ({"valued": lambda: torch.zeros(0)}, "Given.value gives a tensor of shape (0,), not one number"),
        ({"valued": lambda: "0.5"}, "Given.value gives '0.5', not one number"),
        ({"valued": lambda: None}, "Given.value gives None, not one number"),
        ({"valued": lambda: [1.0]}, "Given.value gives [1.0], not one number"),
        ({"summed": 3}, "Given.sums gives 3, not a tensor"),
        ({"summed": torch.zeros(2, 2)}, "Given defines no value(), and its sums are (2, 2), not (2,)"),
        ({"summed": torch.zeros(())}, "Given defines no value(), and its sums are (), not (2,)"),
    ],
)
def test_what_is_no_number_says_whose_it_is(options: dict[str, Any], message: str) -> None:
    """Python said what it could not do, of nothing with a name."""
    one = trainer()
    with pytest.raises(ValueError, match=r"^test_base\.py: ") as error:
        one.evaluate(one.examples.test(), [Given.made(**options)])
    assert str(error.value) == f"test_base.py: {message}"


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), torch.tensor([0.5]), np.float32(0.5), np.array(0.5)])
def test_one_number_may_come_as_anything_that_holds_one(value: Any) -> None:
    assert Given.made(valued=lambda: value).number(torch.ones(2)) == 0.5


class Mute(MetricPlugin):
    kind: Literal["mute"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


@pytest.mark.regression
def test_a_metric_that_returns_nothing_says_so() -> None:
    with pytest.raises(ValueError, match=r"test_base.py: Mute.of_each gives None, not one value a label, \(2,\)"):
        over(Mute.made(), torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), 2)


class Writer(Mean):
    """Right by itself, and it leaves something else behind in what it was given."""

    kind: Literal["writer"]
    to: str

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        found = super().of_each(output, labels).clone()
        {"output": output, "labels": labels}[self.to].zero_()
        return found


@pytest.mark.regression
@pytest.mark.parametrize("to", ["output", "labels"])
def test_a_metric_that_writes_to_what_it_reads_says_so(to: str) -> None:
    """It changed what was measured after it, the accuracy too."""
    one = trainer()
    with pytest.raises(ValueError, match=rf"^test_base\.py: Writer writes to {to}, .*; write to {to}\.clone\(\)$"):
        one.evaluate(one.examples.test(), [Writer.made(to=to)])


# --- in training ---------------------------------------------------------------------------------


def test_an_epoch_ends_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the test set in several batches, and nothing else of the epoch is another."""
    one, plain = trainer(metrics=(Confusion.made(), Mean.made())), trainer()
    images, labels = (torch.cat(parts) for parts in zip(*one.examples.test(), strict=True))
    monkeypatch.setattr(
        type(one.examples), "test", lambda examples: zip(images.split(16), labels.split(16), strict=True)
    )
    row, other = one.epoch(), plain.epoch()
    numbers = json.loads(row.pop("metrics"))
    with torch.no_grad():
        output = one.model.eval()(images)
    assert numbers == {
        "error.confusion": over(Confusion.made(), output, labels, 41),
        "score.mean": pytest.approx(output[:, 0].double().mean().item(), rel=1e-6),
    }
    assert other.pop("metrics") is None
    assert {n: v for n, v in row.items() if "seconds" not in n} == {
        n: v for n, v in other.items() if "seconds" not in n
    }


def test_no_cost_of_a_step_depends_on_them() -> None:
    ours, plain = (trainer(**changes).settings for changes in ({"metrics": (Mean.made(),)}, dict[str, Any]()))
    assert ours.costing() == plain.costing()
    assert costs(ours, (12,), 5).columns == costs(plain, (12,), 5).columns


def test_a_checkpoint_has_them() -> None:
    row = {**trainer(metrics=("top-k",)).epoch(), "key": "a", "block": "b", "turn": None}
    assert checked_rows([row], "a") == [row]
    with pytest.raises(TypeError):
        checked_rows([{**row, "metrics": {"score.top5": 0.5}}], "a")


# --- what a suite says ---------------------------------------------------------------------------


def test_they_are_in_a_key_where_there_are_any() -> None:
    plain, none, some, other = (cell(**one) for one in ({}, {"metrics": ()}, {"metrics": ("top-k",)},
                                {"metrics": ({"kind": "top-k", "k": 3},)}))  # fmt: skip
    assert plain.key == none.key
    assert "metrics" not in plain.canonical
    assert len({plain.key, some.key, other.key}) == 3
    assert '"metrics":[{"kind":"top-k"}]' in some.canonical
    assert Cell.from_canonical(other.canonical) == other
    assert isinstance(some.settings, Settings)


PLUGIN = """
from typing import ClassVar, Literal
from bnpbench import MetricPlugin


class Entropy(MetricPlugin):
    better: ClassVar = "lower"
    kind: Literal["entropy"]
    base: float = 2.0

    def of_each(self, output, labels):
        import math
        return -(output.softmax(1) * output.log_softmax(1)).sum(1) / math.log(self.base)
"""
SUITE = """
name = "own"
plugins = ["entropy.py"]
[train]
dataset = "digits"
network = { kind = "fc", hidden = [12] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 60
epochs = 2
threads = 1
train_limit = 240
metrics = ["entropy", { kind = "top-k", k = 3 }]
[sweep]
method = ["vanilla", "bnp"]
[report]
metric = "error.entropy"
targets = [3.4]
[[claim]]
says = "three guesses find more than one"
metric = "score.top3"
left = { method = "bnp" }
value = { at_least = 0.0 }
[[claim]]
says = "bnp is surer"
metric = "error.entropy"
left = { method = "bnp" }
right = { method = "vanilla" }
difference = { at_most = 4.0 }
"""


def written(folder: Path, suite: str = SUITE) -> Path:
    (folder / "entropy.py").write_text(PLUGIN)
    (folder / "own.toml").write_text(suite)
    return folder / "own.toml"


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("k = 3", "k = 0", "train.metrics", "must be at least 1"),
        ('"entropy",', '"entrpy",', "train.metrics", "entropy"),
        ('"entropy",', '"top-k", { kind = "top-k", k = 5 },', "train.metrics", "two are called score.top5"),
        ('metric = "error.entropy"\ntargets', 'metric = "score.entropy"\ntargets', "report.metric", "error.entropy"),
        ('metric = "score.top3"', 'metric = "score.top5"', "claim[0].metric", "score.top3"),
        ('"entropy",', "", "report.metric", "no cell has this metric"),
        ("metrics = [", 'metrics = "entropy" #', "train.metrics", "expected a list"),
    ],
)
def test_a_wrong_one_is_refused_where_it_stands(old: str, new: str, place: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as error:
        load_suite(written(tmp_path, SUITE.replace(old, new, 1)), allow_plugins=True)
    assert str(error.value.key).startswith(place)
    assert words in f"{error.value} {error.value.closest}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"lower"', '"low"', r"Entropy has better = 'low'; it is \"higher\" or \"lower\""),
        ("def of_each", "def each", r"Entropy defines neither of_each\(\) nor sums\(\)"),
    ],
)
def test_a_class_that_is_no_metric_is_refused_before_anything_runs(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path)
    (tmp_path / "entropy.py").write_text(PLUGIN.replace(old, new))
    with pytest.raises(SuiteError, match=rf"entropy\.py:6: {words}"):
        load_suite(path, allow_plugins=True)


def test_overrides_and_filters_may_name_them(tmp_path: Path) -> None:
    text = SUITE.partition("[report]")[0] + '[[override]]\nwhen = { metrics = ["entropy", "top-k"], method = "bnp" }\n'
    suite = load_suite(written(tmp_path, text + "set = { metrics = [] }\n"), allow_plugins=True)
    kinds = {one.label: [m.kind for m in one.settings.metrics] for one in suite.cells(device="cpu", threads=1)}
    assert kinds == {"vanilla": ["entropy", "top-k"], "bnp": []}


def test_from_a_suite_to_its_report(tmp_path: Path) -> None:
    suite = load_suite(written(tmp_path), allow_plugins=True)
    results = run_suite(suite, out=tmp_path / "results")
    frame = results.frame()
    assert frame["score.top3"].between(0, 1).all()
    assert (frame["score.top3"] >= frame["test_accuracy"]).all()
    assert frame["error.entropy"].between(0, 3.4).all()
    assert "metrics" not in frame
    found = verdicts(results)
    assert [verdict.estimate is not None for verdict in found] == [True, True]
    assert found[0].estimate is not None
    last = frame[(frame.method == "bnp") & (frame.epoch == 2)]
    assert found[0].estimate.value == last["score.top3"].item()
    text = render(results)
    assert "## Error entropy" in text
    assert "score top3, last (2)" in text
    assert "## Time to error entropy" in text
    assert "1 of 1" in text
    assert "error.entropy last" in render(results, "csv")
    assert compare(results, read_results(tmp_path / "results")).exit_code in (0, 4)


# --- in a report ---------------------------------------------------------------------------------


def made(folder: Path, **numbers: list[float]) -> Made:
    """Two methods of which the last number of each metric is that of ``numbers``, vanilla first."""
    one = Made(folder)
    for place, method in enumerate(("vanilla", "bnp")):
        for seed in (1, 2):
            texts = [json.dumps({n.replace("_", "."): v[place] / e for n, v in numbers.items()}) for e in (2, 1)]
            one.cell(method, seed=seed, rows=epochs([1.0] * 2, [0.5, 0.6], train_loss=[2.0, 1.0], metrics=texts))
    return one


@pytest.mark.parametrize(("name", "gain"), [("score_a", "+20.000"), ("error_a", "-20.000")])
def test_which_way_it_is_better_decides_the_gain(name: str, gain: str, tmp_path: Path) -> None:
    one = made(tmp_path, **{name: [30.0, 50.0]})
    one.document["metric"] = name.replace("_", ".")
    results = one.read()
    text = render(results)
    assert gain in text
    assert f"{name.replace('_', ' ')} {'less' if name == 'score_a' else 'below'} vanilla's" in text
    (training,) = (figure for figure in figures.figures(views(results)) if figure.kind == "training")
    drawn = [curve.y for panel in training.panels for curve in panel.curves if curve.quantity == name.replace("_", " ")]
    assert drawn == [(15.0, 30.0), (25.0, 50.0)]


def test_two_runs_are_compared_in_them(tmp_path: Path) -> None:
    base = made(tmp_path / "base", score_a=[0.5, 0.5], error_b=[40.0, 40.0]).read()
    new = made(tmp_path / "new", score_a=[0.5, 0.4], error_b=[40.5, 30.0]).read()
    found = {(one.method, one.quantity): one.judgement for one in compare(base, new).changes if one.what == "metric"}
    assert found == {
        ("vanilla", "score.a"): "same",
        ("vanilla", "error.b"): "within",
        ("bnp", "score.a"): "worse",
        ("bnp", "error.b"): "better",
    }


def test_a_cell_without_it_says_why(tmp_path: Path) -> None:
    one = made(tmp_path, score_a=[0.5, 0.5])
    one.claim("score.b", "value", [one.document["cells"][0]["key"]], at_least=0.1)
    (verdict,) = verdicts(one.read())
    assert (verdict.outcome, verdict.reason) == ("no data", "no score.b: not among its metrics")
