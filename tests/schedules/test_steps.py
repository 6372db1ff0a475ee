"""A learning rate that falls by steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kinds import made


@pytest.mark.parametrize("factor", [0.1, 0.5])
def test_the_share_falls_behind_each_epoch(factor: float) -> None:
    steps = made("schedule", {"kind": "steps", "epochs": (2, 3, 7), "factor": factor})
    shares = [steps.share(epoch) for epoch in range(1, 10)]
    assert shares == pytest.approx([factor**n for n in (0, 0, 1, 2, 2, 2, 2, 3, 3)])


def test_the_factor_is_a_tenth_of_itself() -> None:
    assert made("schedule", {"kind": "steps", "epochs": (80,)}).share(81) == pytest.approx(0.1)


@pytest.mark.parametrize(("epochs", "late"), [(1, 2), (2, 2), (3, 7), (7, 7), (8, None)])
def test_a_step_that_training_does_not_reach_is_told(epochs: int, late: int | None) -> None:
    told = made("schedule", {"kind": "steps", "epochs": (2, 7)}).unused(epochs)
    words = f"the step of the learning rate after epoch {late} comes after the last, {epochs}"
    assert told == (None if late is None else words)


@pytest.mark.parametrize("options", [{"epochs": ()}, {"epochs": (0,)}, {"epochs": (1,), "factor": 1.0}, {}])
def test_what_is_no_step_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"epochs|factor"):
        made("schedule", {"kind": "steps", **options})
