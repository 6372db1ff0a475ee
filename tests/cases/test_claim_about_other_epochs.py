"""A claim whose sides are asked for other epochs was answered from those that both happened to name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import verdicts
from bnpbench.report.claims import Verdict
from tests.support.made_results import Made, epochs


def verdict(folder: Path, left: Any, right: Any, metric: str = "train_seconds") -> Verdict:
    """BNP's first eight epochs take ten times as long as all others; at most 1.05 times as long is claimed."""
    made = Made(folder)
    slow = [10.0] * 8 + [1.0] * 8
    bnp, bn = made.cell("bnp", rows=epochs(slow)), made.cell("bn", rows=epochs([1.0] * 16))
    made.claim(metric, "ratio", [bnp], [bn], left_at=left, right_at=right, at_most=1.05)
    (found,) = verdicts(made.read())
    return found


def test_each_side_has_its_own_epochs(tmp_path: Path) -> None:
    found = verdict(tmp_path, {"epochs": [1, 14]}, {"epochs": [9, 16]})
    assert found.estimate is not None
    assert (found.outcome, found.estimate.value, found.unit) == ("undecided", 10.0, "epochs")
    assert "each side over epochs of its own" in found.reason


def test_the_last_epoch_is_not_every_epoch(tmp_path: Path) -> None:
    found = verdict(tmp_path, "last", "all")
    assert (found.unit, found.outcome, found.reason.partition(";")[0]) == ("epochs", "undecided", "n = 1")
    assert found.question == "ratio of train_seconds, bnp (the last epoch) / bn"


@pytest.mark.parametrize("right", ["all", "area", {"epochs": [1, 16]}])
def test_the_same_epochs_are_paired_whatever_they_are_called(tmp_path: Path, right: Any) -> None:
    found = verdict(tmp_path, "all", right)
    assert found.estimate is not None
    assert (found.unit, found.estimate.n) == ("pairs", 16)
