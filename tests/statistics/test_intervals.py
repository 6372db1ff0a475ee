"""Intervals over seeds and exponents, against scipy and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bnpbench.statistics.intervals import mean_interval, outliers, power_law, ratio_interval

INFINITY = math.inf


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_seed_interval_covers_the_truth_in_95_percent_of_simulations(n: int) -> None:
    samples = np.random.default_rng(n).normal(3.0, 2.0, (6000, n))
    intervals = [mean_interval(sample.tolist()) for sample in samples]
    covered = np.mean([i.low is not None and i.high is not None and i.low <= 3.0 <= i.high for i in intervals])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_seed_interval_is_students(n: int) -> None:
    sample = np.random.default_rng(n).normal(size=n)
    expected = stats.t.interval(0.95, n - 1, loc=sample.mean(), scale=stats.sem(sample))
    found = mean_interval(sample.tolist())
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)
    assert found.value == pytest.approx(sample.mean())


def test_ratios_of_seeds_are_averaged_as_logarithms() -> None:
    logs = [0.1, 0.2, 0.4]
    expected = stats.t.interval(0.95, 2, loc=np.mean(logs), scale=stats.sem(logs))
    found = ratio_interval([math.exp(log) for log in logs])
    assert (found.low, found.high) == pytest.approx(np.exp(expected), rel=1e-12)
    assert found.value == pytest.approx(math.exp(np.mean(logs)))


@pytest.mark.parametrize("interval", [mean_interval, ratio_interval])
def test_equal_values_decide_nothing(interval: object) -> None:
    found = interval([1.1, 1.1, 1.1])  # type: ignore[operator]
    assert (found.value, found.low, found.high, found.reason) == (1.1, None, None, "3 equal values")


@pytest.mark.parametrize("values", [[0.9 - 0.8, 0.8 - 0.7, 0.3 - 0.2], [7e9 / 7, 1e9, 1e9 * 1.1 / 1.1]])
def test_what_arithmetic_loses_makes_no_values_unequal(values: list[float]) -> None:
    assert len(set(values)) > 1
    assert mean_interval(values).reason == "3 equal values"
    assert ratio_interval([value / values[0] for value in values]).reason == "3 equal values"


def test_rounded_values_are_known_to_no_more_than_their_rounding() -> None:
    """A share of 360 examples moves by 1 / 360 at least; a number rounded to steps has the variance step^2 / 12."""
    rounding = 1 / 360 / math.sqrt(12)
    half = stats.t.ppf(0.975, 2) * rounding / math.sqrt(3)
    found = mean_interval([0.9, 0.9, 0.9], rounding)
    assert (found.low, found.high) == pytest.approx((0.9 - half, 0.9 + half))
    assert mean_interval([0.8, 0.9, 0.85], rounding) == mean_interval([0.8, 0.9, 0.85])
    found = ratio_interval([1.1, 1.1], 0.01)
    assert (found.low, found.high) == pytest.approx(
        (1.1 / math.exp(0.01 * 12.7062 / math.sqrt(2)), 1.1 * math.exp(0.01 * 12.7062 / math.sqrt(2))), rel=1e-5
    )


@pytest.mark.parametrize("interval", [mean_interval, ratio_interval])
def test_what_is_infinite_for_all_is_so(interval: object) -> None:
    found = interval([INFINITY, INFINITY])  # type: ignore[operator]
    assert (found.value, found.low, found.high) == (INFINITY, INFINITY, INFINITY)


@pytest.mark.parametrize(
    ("interval", "values", "reason"),
    [
        (mean_interval, [1.0, INFINITY], "1 of 2 infinite"),
        (ratio_interval, [2.0, INFINITY, INFINITY], "2 of 3 infinite"),
        (ratio_interval, [0.0, 2.0], "1 of 2 infinite"),
        (ratio_interval, [-1.0, 2.0], "a ratio below 0 has no logarithm"),
        (mean_interval, [4.0], "n = 1"),
        (ratio_interval, [4.0], "n = 1"),
    ],
)
def test_no_interval_is_invented(interval: object, values: list[float], reason: str) -> None:
    found = interval(values)  # type: ignore[operator]
    assert (found.low, found.high, found.reason) == (None, None, reason)


def test_outliers_are_flagged_by_the_median_absolute_deviation() -> None:
    assert outliers([1.0, 1.01, 0.99, 1.02, 0.98, 2.0]) == [False] * 5 + [True]
    assert outliers([1.0] * 9 + [1.5]) == [False] * 9 + [True]  # more than half are equal
    assert outliers([1.0] * 6) == [False] * 6
    assert outliers([1.0, 5.0]) == [False, False]


def test_power_law_has_the_textbook_interval() -> None:
    """Against a regression of one column by its closed form."""
    x, y = [1.0, 2.0, 4.0, 8.0], [1.0, 2.2, 3.7, 8.4]
    (found,) = power_law([x], y)
    line = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.975, 2) * line.stderr
    assert found.value == pytest.approx(line.slope)
    assert (found.low, found.high) == pytest.approx((line.slope - half, line.slope + half))


def test_power_law_needs_columns_that_differ_and_points_to_spare() -> None:
    assert power_law([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]], [1.0, 2.0, 3.0]) == []
    assert power_law([[1.0, 2.0]], [1.0, 2.0]) == []


@pytest.mark.parametrize("noise", ["even", "heavy tails"])
@pytest.mark.parametrize("n", [3, 4, 5, 8, 20])
def test_the_interval_of_an_exponent_holds_the_truth_in_95_percent_of_simulations(n: int, noise: str) -> None:
    random = np.random.default_rng(n)
    drawn = random.normal(size=(2000, n)) if noise == "even" else random.standard_t(3, (2000, n))
    x = 2.0 ** np.arange(n)
    found = [power_law([x.tolist()], (3 * x**0.7 * np.exp(0.1 * row)).tolist())[0] for row in drawn]
    assert 0.93 <= np.mean([e.low <= 0.7 <= e.high for e in found]) <= 0.98  # type: ignore[operator]


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("examples", [360, 10_000])
def test_accuracies_of_few_examples_hold_the_truth_in_93_percent_of_simulations(examples: int, n: int) -> None:
    """Counts of right answers, of seeds that differ by less than an example and by more."""
    random = np.random.default_rng([n, examples])
    for spread in (0.1, 0.3, 1.0, 0.01 * examples):
        for level in (0.1, 0.3, 0.5):
            drawn = np.round(random.normal(0.9 * examples + level, spread, (4000, n))) / examples
            truth = float(drawn.mean())
            found = [mean_interval(row, 1 / examples / math.sqrt(12)) for row in drawn[:2000].tolist()]
            held = np.mean([e.low <= truth <= e.high for e in found])  # type: ignore[operator]
            assert held >= 0.93, (spread, level, held)
