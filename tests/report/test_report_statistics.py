"""Intervals against scipy, exact distributions and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bnpbench.report import bootstrap
from bnpbench.report.advice import seeds_needed
from bnpbench.report.bootstrap import (
    RESAMPLES,
    cells_interval,
    change_interval,
    median_interval,
    resampled_medians,
    unpaired_interval,
)
from bnpbench.report.statistics import Estimate, mean_interval, outliers, ratio_interval

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


@pytest.mark.parametrize("n", [6, 7, 20])
def test_the_bootstrap_of_the_median_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    found = median_interval(values.tolist())
    expected = stats.bootstrap(
        (values,), np.median, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.02)
    assert found.value == np.median(values)


@pytest.mark.parametrize("n", [6, 13, 100])
def test_counting_equal_resamples_once_changes_nothing(n: int) -> None:
    values = np.sort(np.random.default_rng(n).normal(size=n))
    medians = np.sort(resampled_medians(values))
    found = median_interval(values.tolist())
    assert (found.low, found.high) == (medians[250], medians[9750])


@pytest.mark.parametrize("n", [7, 61])
def test_an_odd_resamples_median_has_the_exact_distribution(n: int) -> None:
    """The median of n draws is at most the k-th value when more than half of the draws are."""
    drawn = resampled_medians(np.arange(1.0, n + 1))
    for k in range(1, n + 1):
        exact = stats.binom.sf(n // 2, n, k / n)
        assert np.mean(drawn <= k) == pytest.approx(exact, abs=4 * math.sqrt(0.25 / RESAMPLES))


def test_the_bootstrap_covers_the_median_of_ratios() -> None:
    samples = np.random.default_rng(5).lognormal(math.log(1.1), 0.05, (1000, 20))
    intervals = [median_interval(sample.tolist()) for sample in samples]
    assert 0.92 <= np.mean([i.low <= 1.1 <= i.high for i in intervals if i.low and i.high]) <= 0.98


@pytest.mark.parametrize(
    ("values", "reason"),
    [([1.5], "n = 1"), ([1.0, 1.1], "n = 2 of 6"), ([1.0, 1.1, 1.2, 1.3, 1.4], "n = 5 of 6")],
)
def test_fewer_than_six_pairs_have_no_interval(values: list[float], reason: str) -> None:
    found = median_interval(values)
    assert (found.low, found.high, found.reason, found.n) == (None, None, reason, len(values))


@pytest.mark.parametrize("interval", [median_interval, mean_interval, ratio_interval])
def test_equal_values_give_width_0(interval: object) -> None:
    found = interval([1.1, 1.1, 1.1])  # type: ignore[operator]
    assert (found.value, found.low, found.high, found.width) == (1.1, 1.1, 1.1, 0)


@pytest.mark.parametrize("interval", [mean_interval, ratio_interval])
@pytest.mark.parametrize("value", [INFINITY, 0.0])
def test_equal_infinite_and_zero_values_are_equal_values(interval: object, value: float) -> None:
    found = interval([value, value])  # type: ignore[operator]
    assert (found.value, found.low, found.high) == (value, value, value)


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


def test_the_same_data_give_the_same_interval() -> None:
    values = np.random.default_rng(0).normal(10, 1, 12).tolist()
    assert median_interval(values) == median_interval(list(reversed(values)))


def test_unpaired_samples_are_resampled_independently() -> None:
    random = np.random.default_rng(3)
    left, right = random.lognormal(0, 0.1, 30), random.lognormal(0, 0.1, 30)
    found = unpaired_interval(left.tolist(), right.tolist(), ratio=True)
    expected = stats.bootstrap(
        (left, right),
        lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
        vectorized=True,
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.02)
    assert unpaired_interval([2.0, 3.0], [1.0, 1.0], ratio=False).value == 1.5


def test_what_differs_between_cells_widens_a_comparison() -> None:
    epochs = np.random.default_rng(2).normal(1.0, 0.005, (3, 20))
    calm = change_interval(epochs.tolist(), (1.1 * epochs).tolist())
    drifting = change_interval(epochs.tolist(), (epochs * np.array([[1.0], [1.1], [1.2]])).tolist())
    assert calm.value == pytest.approx(1.1, abs=1e-9)
    assert calm.width is not None
    assert drifting.width is not None
    assert drifting.width > 5 * calm.width
    assert change_interval([[1.0, 1.0]], [[2.0, 2.0]]).reason == "n = 2 of 6"


@pytest.mark.parametrize(("processes", "least"), [(1, 0.9), (3, 0.8), (6, 0.85)])
def test_what_differs_between_processes_is_in_the_interval(processes: int, least: float) -> None:
    """Ratios whose level moves by 2 % from process to process, and by 5 % from epoch to epoch."""
    random, covered = np.random.default_rng(processes), 0
    for _ in range(200):
        level = random.normal(0, 0.02 if processes > 1 else 0.0, (processes, 1))
        found = cells_interval(np.exp(level + random.normal(0, 0.05, (processes, 15))).tolist())
        assert found.n == processes * 15
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1 <= found.high
    assert covered / 200 >= least


def test_one_cell_is_its_median_and_equal_cells_have_width_0() -> None:
    values = [1.0, 1.2, 0.9, 1.1, 1.3, 0.8]
    assert cells_interval([values]) == median_interval(values)
    assert cells_interval([[1.1] * 5, [1.1] * 4]) == Estimate(1.1, 9, 1.1, 1.1)
    assert cells_interval([[1.0, 2.0], [3.0]]).reason == "n = 3 of 6"
    assert cells_interval([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]).value == 4.0


def test_an_outlier_in_each_cell_moves_no_bound_of_a_median() -> None:
    found = cells_interval([[1.0] * 5 + [9.0]] * 3)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_outliers_are_flagged_by_the_median_absolute_deviation() -> None:
    assert outliers([1.0, 1.01, 0.99, 1.02, 0.98, 2.0]) == [False] * 5 + [True]
    assert outliers([1.0] * 9 + [1.5]) == [False] * 9 + [True]  # more than half are equal
    assert outliers([1.0] * 6) == [False] * 6
    assert outliers([1.0, 5.0]) == [False, False]


def test_thousands_of_epochs_cost_no_more_than_a_few() -> None:
    bootstrap._middle_ranks.cache_clear()
    found = median_interval(np.random.default_rng(0).normal(1, 0.1, 200_000).tolist())
    assert found.low is not None
    assert found.low < 1 < (found.high or 0)


@pytest.mark.parametrize(("n", "distance"), [(2, 0.09), (3, 0.02), (5, 0.01)])
def test_seeds_needed_make_the_interval_narrow_enough(n: int, distance: float) -> None:
    deviation = 0.05

    def half(count: int) -> float:
        """Of count values with that standard deviation."""
        values = np.resize([-1.0, 1.0], count - count % 2)
        values = np.append(values, [0.0] * (count % 2))
        width = mean_interval((values * deviation / np.std(values, ddof=1)).tolist()).width
        assert width is not None
        return width

    needed = seeds_needed(n, half(n), distance, 1000)
    assert needed is not None
    assert needed > n
    assert half(needed) < distance <= half(needed - 1) or needed == n + 1
    assert seeds_needed(n, half(n), 1e-6, 1000) is None


def test_no_interval_of_times_ends_below_zero() -> None:
    cells = [[13.0, 12.0, 14.0], [12.0, 13.0, 12.5], [0.5, 0.4, 0.6]]
    estimate = cells_interval(cells)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 < estimate.low < 0.5 < estimate.value <= estimate.high
    shifted = cells_interval([[value - 0.5 for value in values] for values in cells])  # no longer all positive
    assert shifted.low is not None
    assert shifted.low < -0.1
