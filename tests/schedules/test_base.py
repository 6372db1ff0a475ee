"""Learning rates, warm-ups among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.kinds import made


def schedule(options: Any, rate: float = 0.1, iterations: int = 100) -> Callable[[int, int], float]:
    made_of = made("schedule", options)
    return lambda epoch, iteration: float(made_of.rate(rate, epoch, iteration, iterations, 600))


STEPS = {"kind": "steps", "epochs": (80, 120)}


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ("constant", {(1, 0): 0.1, (1, 99): 0.1, (500, 50): 0.1}),
        (STEPS, {(1, 0): 0.1, (80, 99): 0.1, (81, 0): 0.01, (120, 99): 0.01, (121, 0): 0.001, (500, 0): 0.001}),
        ({**STEPS, "epochs": (1, 2), "factor": 0.5}, {(1, 99): 0.1, (2, 0): 0.05, (3, 0): 0.025}),
        (
            {"kind": "constant", "warmup": {"kind": "constant", "start": 0.01, "iterations": 250}},
            {(1, 0): 0.01, (3, 49): 0.01, (3, 50): 0.1, (4, 0): 0.1},
        ),
        (
            {"kind": "constant", "warmup": {"kind": "constant", "start": 0.01, "epochs": 2}},
            {(1, 0): 0.01, (2, 99): 0.01, (3, 0): 0.1},
        ),
        (
            {"kind": "constant", "warmup": {"kind": "linear", "start": 0.01, "epochs": 2}},
            {(1, 0): 0.01, (1, 50): 0.01 + 0.09 / 4, (2, 0): 0.055, (2, 99): 0.01 + 0.09 * 199 / 200, (3, 0): 0.1},
        ),
        (
            {"kind": "constant", "warmup": {"kind": "linear", "start": 0.2, "iterations": 10}},
            {(1, 0): 0.2, (1, 5): 0.15, (1, 10): 0.1, (2, 0): 0.1},
        ),
        (
            {**STEPS, "warmup": {"kind": "linear", "start": 0.01, "iterations": 100}},
            {(1, 0): 0.01, (1, 99): 0.0991, (2, 0): 0.1, (80, 99): 0.1, (81, 0): 0.01, (121, 0): 0.001},
        ),
    ],
)
def test_rates(options: Any, table: dict[tuple[int, int], float]) -> None:
    rate = schedule(options)
    assert {at: rate(*at) for at in table} == pytest.approx(table)


@pytest.mark.parametrize(
    ("warmup", "iterations"),
    [
        (None, 0),
        ({"kind": "constant", "start": 0.01, "iterations": 7}, 7),
        ({"kind": "linear", "start": 0.01, "epochs": 3}, 300),
    ],
)
def test_after_the_warm_up_the_rate_changes_only_between_epochs(warmup: Any, iterations: int) -> None:
    rate = schedule({**STEPS, "warmup": warmup})
    assert made("schedule", {**STEPS, "warmup": warmup}).warmup_iterations(100) == iterations
    flat = [rate(1 + step // 100, step % 100) for step in range(1000)]
    assert set(flat[iterations:]) == {0.1}
    assert 0.1 not in flat[:iterations]


def test_the_full_rate_is_exactly_the_optimizers() -> None:
    warmup = {"kind": "linear", "start": 1e-3, "iterations": 3}
    assert schedule({"kind": "constant", "warmup": warmup}, rate=0.3)(1, 3) == 0.3
    assert schedule(STEPS, rate=0.3)(80, 0) == 0.3
