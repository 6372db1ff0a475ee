"""What the tables of a suite hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench import read_results
from bnpbench.suite import Measure, Suite
from tests.support.command import called
from tests.support.kinds import made
from tests.support.suite_texts import DOUBTS, SWEEP


def test_the_shape_of_synthetic_data() -> None:
    shape = made("dataset", {"kind": "synthetic", "shape": (3, 4), "classes": 5, "train": 6, "test": 7}).describe()
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, 4), 5, 6, 7)


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
    text = DOUBTS.replace("epochs = 2", "epochs = 1") + SWEEP.replace("[1, 2]", "[1]")
    load(text + '[measure]\ninterleave = ["method"]\ninterval = "0.01%"\n')
    words = "warning: interval gives up after 100 epochs, as neither max_epochs nor max_seconds says when"
    assert words in called("check", "small.toml", cwd=tmp_path).stdout
    done = called("run", "small.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    results = read_results(tmp_path / "results")
    assert set(results.cells.stopped_by) == {"max_epochs"}
    assert results.epochs.groupby("key").epoch.max().tolist() == [100, 100]
    assert "(none was given: after 100 epochs)" in done.stdout
