"""Medians and their bootstrap intervals, against scipy, exact distributions and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bnpbench.statistics.bootstrap import (
    RESAMPLES,
    cells_interval,
    change_interval,
    median_interval,
    resampled_medians,
    unpaired_interval,
)
from bnpbench.statistics.intervals import Estimate


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


def test_thousands_of_epochs_cost_no_more_than_a_few() -> None:
    found = median_interval(np.random.default_rng(0).normal(1, 0.1, 200_000).tolist())
    assert found.low is not None
    assert found.low < 1 < (found.high or 0)


def test_no_interval_of_times_ends_below_zero() -> None:
    cells = [[13.0, 12.0, 14.0], [12.0, 13.0, 12.5], [0.5, 0.4, 0.6]]
    estimate = cells_interval(cells)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 < estimate.low < 0.5 < estimate.value <= estimate.high
    shifted = cells_interval([[value - 0.5 for value in values] for values in cells])  # no longer all positive
    assert shifted.low is not None
    assert shifted.low < -0.1
