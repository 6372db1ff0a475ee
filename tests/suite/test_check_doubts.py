"""What a suite may well ask for, and hardly means; and where an interval gives up that nothing bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench import load_suite, read_results
from bnpbench.suite import Measure, Suite, shipped_suites
from tests.support.command import bnpbench

SUITE = """
name = "doubts"
[train]
dataset = { kind = "synthetic", shape = [8], classes = 3, train = 60, test = 30 }
network = { kind = "fc", hidden = [8] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 20
epochs = 2
threads = 1
"""
SWEEP = '[sweep]\nmethod = ["vanilla", "bnp"]\nseed = [1, 2]\n'


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Suite]:
    def load(text: str) -> Suite:
        path = tmp_path / "doubts.toml"
        path.write_text(text)
        return load_suite(path)

    return load


def doubts(suite: Suite) -> list[str]:
    return suite.warnings(suite.cells(device="cpu", threads=1))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 100 } }', "warm-up of 100 epochs"),
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 2 } }', "warm-up of 2 epochs"),
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 1 } }', None),
        ('{ kind = "constant", warmup = { kind = "constant", start = 0.01, iterations = 6 } }', "of 6 iterations"),
        ('{ kind = "constant", warmup = { kind = "constant", start = 0.01, iterations = 5 } }', None),
        ('{ kind = "steps", epochs = [1, 2] }', "after epoch 2 comes after the last, 2"),
        ('{ kind = "steps", epochs = [1] }', None),
    ],
)
def test_a_schedule_that_the_training_does_not_reach(
    load: Callable[[str], Suite], schedule: str, words: str | None
) -> None:
    found = doubts(load(f"{SUITE}schedule = {schedule}\n{SWEEP}"))
    assert len(found) == (words is not None)
    assert words is None or (words in found[0] and found[0].startswith("vanilla, bnp: "))


@pytest.mark.parametrize("name", shipped_suites())
def test_the_shipped_suites_mean_what_they_ask_for(name: str) -> None:
    assert doubts(load_suite(name)) == []


@pytest.mark.parametrize(
    ("table", "epochs", "last"),
    [
        ({}, 7, 7),
        ({"interval": 0.01}, 7, 100),
        ({"interval": 0.01}, 70, 700),
        ({"interval": 0.01, "max_epochs": 20}, 7, 20),
        ({"interval": 0.01, "max_seconds": 20.0}, 7, None),
        ({"interval": 0.01, "max_seconds": 20.0, "max_epochs": 9}, 7, 9),
    ],
)
def test_every_measurement_has_an_end(table: dict[str, float], epochs: int, last: int | None) -> None:
    assert Measure(interleave=("method",), **table).last_epoch(epochs) == last  # type: ignore[arg-type]


def test_an_interval_that_nothing_bounds_ends_and_is_told_of(load: Callable[[str], Suite], tmp_path: Path) -> None:
    text = SUITE.replace("epochs = 2", "epochs = 1") + SWEEP.replace("[1, 2]", "[1]")
    load(text + '[measure]\ninterleave = ["method"]\ninterval = "0.01%"\n')
    words = "warning: interval gives up after 100 epochs, as neither max_epochs nor max_seconds says when"
    assert words in bnpbench("check", "doubts.toml", cwd=tmp_path).stdout
    done = bnpbench("run", "doubts.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    results = read_results(tmp_path / "results")
    assert set(results.cells.stopped_by) == {"max_epochs"}
    assert results.epochs.groupby("key").epoch.max().tolist() == [100, 100]
    assert "(none was given: after 100 epochs)" in done.stdout


def test_more_threads_than_cores(load: Callable[[str], Suite]) -> None:
    (told,) = doubts(load(SUITE.replace("threads = 1", "threads = 9999") + SWEEP))
    assert told.startswith("vanilla, bnp: 9,999 threads are more than the ")
    assert doubts(load(SUITE + SWEEP)) == []
