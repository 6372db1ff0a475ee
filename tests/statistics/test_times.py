"""Medians of times and their intervals, against scipy and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bnpbench.statistics.intervals import Estimate
from bnpbench.statistics.times import LEAST_PROCESSES, median_interval, processes_interval, unpaired_interval

LEAST, MOST = 0.93, 0.98  # of simulated coverage
TRIALS = 2000  # whose standard error is 0.005

# Logarithms of what an epoch takes: its median is 0.
EPOCHS = {
    "even": lambda random, shape: random.normal(0, 0.05, shape),
    "heavy tails": lambda random, shape: 0.05 * random.standard_t(3, shape),
    "one of ten disturbed": lambda random, shape: (
        random.normal(0, 0.03, shape) + (random.random(shape) < 0.1) * 0.3 - 0.00418
    ),
}


def covered(estimates: list[Estimate], truth: float) -> float:
    """The share of intervals that hold the truth; one that decides nothing does."""
    return sum(found.low is None or found.low <= truth <= found.high for found in estimates) / len(estimates)  # type: ignore[operator]


def test_there_is_an_interval_to_cover() -> None:
    assert median_interval([1.0, 1.1], "times").low is not None
    assert processes_interval([[1.0], [1.1]], "times").low is not None
    assert unpaired_interval([[1.0], [1.1], [1.2]], [[1.0], [1.2], [1.3]], ratio=True).low is not None


@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 61])
def test_one_process(n: int, kind: str) -> None:
    drawn = 1.1 * np.exp(EPOCHS[kind](np.random.default_rng(n), (TRIALS, n)))
    assert LEAST <= covered([median_interval(sample, "times") for sample in drawn.tolist()], 1.1) <= MOST


@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize(("processes", "n"), [(2, 1), (2, 8), (3, 2), (3, 5), (5, 1), (5, 2), (5, 8), (10, 3), (10, 5)])
def test_several_processes(processes: int, n: int, spread: float, kind: str) -> None:
    """Each process has a level of its own."""
    random = np.random.default_rng(100 * processes + n)
    levels = random.normal(0, spread, (TRIALS, processes, 1))
    drawn = 1.1 * np.exp(levels + EPOCHS[kind](random, (TRIALS, processes, n)))
    assert LEAST <= covered([processes_interval(sample, "times") for sample in drawn.tolist()], 1.1) <= MOST


@pytest.mark.parametrize("spreads", [(0.02, 0.02), (0.1, 0.1), (0.1, 0.0), (0.0, 0.1)])
@pytest.mark.parametrize("counts", [(3, 3), (3, 5), (3, 10), (5, 5)])
def test_sides_apart(counts: tuple[int, int], spreads: tuple[float, float]) -> None:
    random = np.random.default_rng(counts)
    sides = [
        np.exp(random.normal(0, spread, (TRIALS, count, 1)) + random.normal(0, 0.05, (TRIALS, count, 8)))
        for count, spread in zip(counts, spreads, strict=True)
    ]
    pairs = zip((1.1 * sides[0]).tolist(), sides[1].tolist(), strict=True)
    assert LEAST <= covered([unpaired_interval(left, right, ratio=True) for left, right in pairs], 1.1) <= 0.985


@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("processes", [2, 5, 10, 20])
def test_ratios_measured_in_turn_have_an_interval_at_any_number(processes: int, n: int, kind: str) -> None:
    """What disturbs either side pulls a ratio up as often as down."""
    random, shape = np.random.default_rng([processes, n]), (TRIALS, processes, n)
    drawn = 1.1 * np.exp(EPOCHS[kind](random, shape) - EPOCHS[kind](random, shape))
    found = [processes_interval(sample, "ratios") for sample in drawn.tolist()]
    assert all(estimate.low is not None for estimate in found)
    assert LEAST <= covered(found, 1.1) <= 0.985


@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("epochs", [(1, 8), (2, 8), (3, 8), (2, 2)])
@pytest.mark.parametrize("counts", [(3, 3), (3, 10), (10, 3), (10, 10), (20, 20)])
def test_sides_apart_of_unlike_lengths(counts: tuple[int, int], epochs: tuple[int, int], kind: str) -> None:
    random = np.random.default_rng([*counts, *epochs])
    shapes = [(TRIALS, *both) for both in zip(counts, epochs, strict=True)]
    left, right = (np.exp(EPOCHS[kind](random, shape)).tolist() for shape in shapes)
    found = [unpaired_interval(*sides, ratio=True) for sides in zip(left, right, strict=True)]
    assert covered(found, 1.0) >= LEAST


@pytest.mark.parametrize("n", [1, 2])
def test_many_processes_of_few_epochs_have_no_interval(n: int) -> None:
    short, long = np.random.default_rng(n).lognormal(size=(6, n)).tolist(), [[1.0, 1.1, 1.2]] * 6
    assert processes_interval(short, "times").reason == "fewer than 3 epochs a process"
    assert processes_interval(short, "times").value == pytest.approx(stats.gmean(np.median(short, axis=1)))
    assert processes_interval(short[:5], "times").low is not None
    for sides in ((short, long), (long, short)):
        assert unpaired_interval(*sides, ratio=True).reason == "fewer than 3 epochs a process"
    assert unpaired_interval(short, short[::-1], ratio=True).low is not None  # both are pulled alike


@pytest.mark.parametrize("n", [6, 7, 20, 61, 200])
def test_ranks_lie_between_those_of_the_exact_test(n: int) -> None:
    """scipy's ranks hold the median with at least 95 %; the next ones within do not."""
    values = np.sort(np.random.default_rng(n).lognormal(size=n))
    exact = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    found = median_interval(values.tolist(), "times")
    assert found.value == np.median(values)
    low, high = (int(np.searchsorted(values, bound)) for bound in exact)
    assert values[low] <= found.low < values[low + 1]  # type: ignore[operator]
    assert values[high - 1] < found.high <= values[high]  # type: ignore[operator]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_epochs_have_students_interval_of_their_logarithms(n: int) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    logs = np.log(values)
    found = median_interval(values.tolist(), "times")
    assert (found.low, found.high) == pytest.approx(
        np.exp(stats.t.interval(0.95, n - 1, loc=logs.mean(), scale=stats.sem(logs)))
    )
    assert found.value == pytest.approx(np.median(values))


def test_processes_weigh_the_same_and_their_medians_have_students_interval() -> None:
    processes = [[1.0, 1.1, 9.0], [1.2] * 20, [1.3, 1.4]]
    logs = np.log([1.1, 1.2, 1.35])
    found = processes_interval(processes, "times")
    assert (found.low, found.high) == pytest.approx(
        np.exp(stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs)))
    )
    assert (found.value, found.n, found.processes) == (pytest.approx(np.exp(logs.mean())), 25, 3)


@pytest.mark.regression
@pytest.mark.parametrize("n", [2, 4, 5, 8, 9, 20])
@pytest.mark.parametrize("processes", [1, 3])
def test_sides_swapped_give_the_inverse(n: int, processes: int) -> None:
    """The middle of two ratios was their arithmetic mean, and each bound was interpolated so."""
    drawn = np.random.default_rng(n).lognormal(0.1, 0.5, (processes, n))
    found, swapped = (processes_interval(ratios.tolist(), "ratios") for ratios in (drawn, 1 / drawn))
    expected = (1 / swapped.value, 1 / swapped.high, 1 / swapped.low)  # type: ignore[operator]
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.regression
def test_the_middle_of_two_ratios_is_their_geometric_mean_and_of_others_the_mean() -> None:
    assert median_interval([8.0, 2.0], "ratios").value == pytest.approx(4.0)
    assert median_interval([9.0, 0.1, 2.0, 8.0], "ratios").value == pytest.approx(4.0)
    for kind in ("times", "differences"):
        assert median_interval([8.0, 2.0], kind).value == 5.0  # type: ignore[arg-type]
    assert unpaired_interval([[8.0, 2.0]], [[2.0]], ratio=True, kind="ratios").value == pytest.approx(2.0)
    assert unpaired_interval([[8.0, 2.0]], [[2.0]], ratio=True).value == pytest.approx(2.5)
    assert median_interval([0.0, 2.0], "ratios").value == 1.0  # no logarithm


def test_differences_are_no_logarithms() -> None:
    found = processes_interval([[-1.0], [0.5], [2.0]], "differences")
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 2, loc=0.5, scale=1.5 / math.sqrt(3)))


@pytest.mark.parametrize("ratio", [False, True])
def test_sides_apart_have_welchs_interval(ratio: bool) -> None:
    random = np.random.default_rng(3)
    left, right = random.lognormal(0, 0.2, (4, 7)), random.lognormal(0, 0.3, (4, 5))
    medians = [np.median(side, axis=1) for side in (left, right)]
    logs = [np.log(side) for side in medians] if ratio else medians
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    found = unpaired_interval(left.tolist(), right.tolist(), ratio=ratio)
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(expected) if ratio else expected))
    assert (found.n, found.processes) == (20, 4)


@pytest.mark.parametrize("counts", [(1, 1), (1, 9), (2, 9)])
def test_too_few_processes_a_side_have_no_interval(counts: tuple[int, int]) -> None:
    found = unpaired_interval([[2.0, 2.2]] * counts[0], [[1.0, 1.1]] * counts[1], ratio=True)
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high) == (None, None)
    assert found.reason == f"{counts[0]} of {LEAST_PROCESSES} processes a side"


def test_equal_values_decide_nothing() -> None:
    assert median_interval([1.1] * 3, "times") == Estimate(1.1, 3, reason="3 equal values")
    assert median_interval([1.1] * 9, "times") == Estimate(1.1, 9, reason="9 equal values")
    assert processes_interval([[1.1] * 4, [1.1] * 5], "times") == Estimate(1.1, 9, reason="2 equal values", processes=2)
    assert unpaired_interval([[2.0]] * 3, [[1.0]] * 3, ratio=False).reason == "equal values"
    assert median_interval([1.5], "times").reason == "n = 1"
    assert (
        median_interval([1.1 * e / e for e in range(1, 9)], "times").reason == "8 equal values"
    )  # but for the last digit
    lost = [[1.1 * e / e] for e in (1, 3, 7)]
    assert unpaired_interval(lost, lost, ratio=True).reason == "equal values"


def test_an_outlier_in_each_process_moves_no_bound() -> None:
    calm = [[1.0, 1.01, 1.02, 1.03, 1.04], [1.1, 1.11, 1.12, 1.13, 1.14]]
    assert processes_interval([[*epochs[:4], 90.0] for epochs in calm], "times") == processes_interval(calm, "times")


def test_thousands_of_epochs() -> None:
    found = median_interval(np.random.default_rng(0).normal(1, 0.1, 200_000).tolist(), "times")
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.2533 * 0.1 / math.sqrt(200_000), rel=0.05)  # type: ignore[operator]


def test_no_interval_of_times_ends_below_zero() -> None:
    found = processes_interval([[13.0, 12.0, 14.0], [12.0, 13.0, 12.5], [0.5, 0.4, 0.6]], "times")
    assert 0 < found.low < 0.5  # type: ignore[operator]


@pytest.mark.regression
@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_difference_has_no_logarithm_even_where_all_are_positive(n: int) -> None:
    """Three differences of .256, .271, .012 do not exclude 0."""
    processes = [[level] * n for level in (0.256, 0.271, 0.012)]
    found = processes_interval(processes, "differences")
    levels = np.array([0.256, 0.271, 0.012])
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 2, loc=levels.mean(), scale=stats.sem(levels))
    )
    assert found.low < 0  # type: ignore[operator]
    few = median_interval([0.256, 0.271, 0.012], "differences")
    assert (few.low, few.high) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_differences_of_several_processes(processes: int) -> None:
    drawn = np.random.default_rng(processes).normal(0.3, 0.2, (TRIALS, processes, 1))
    assert LEAST <= covered([processes_interval(one, "differences") for one in drawn.tolist()], 0.3) <= MOST
