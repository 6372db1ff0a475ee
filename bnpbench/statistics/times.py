"""Medians of times, and of ratios and differences of times, with 95 % intervals.

A process is what repeats: from one to the next a time moves by more than the epochs within either show. So the number
is the mean over processes of each one's median, and Student's t over processes gives its interval: on a logarithmic
scale for times and ratios, so that none ends below 0. Of a single process the interval is about
its own epochs: between two order statistics, interpolated (Hettmansperger and Sheather 1986, Statistics and Probability
Letters 4), which holds the median whatever the distribution; below six epochs by Student's t. Its coverage is
simulated in ``tests/statistics/test_times.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np

from bnpbench.statistics.intervals import (
    CONFIDENCE,
    QUIET,
    Array,
    Estimate,
    alike,
    exponential,
    mean_interval,
    ratio_interval,
    student,
)

LEAST_RANKED = 6  # epochs; the outermost two of fewer hold the median in less than 95 % of samples
LEAST_EPOCHS, MOST_SHORT = 3, 5  # epochs of a process, and how many processes may have fewer (see ``_pulled``)
LEAST_PROCESSES = 3  # a side; with two on one and more on the other, Welch's interval holds the truth in 88 to 92 %
_FEW_EPOCHS = f"fewer than {LEAST_EPOCHS} epochs a process"

Kind = Literal["times", "ratios", "differences"]  # the latter two of paired times


@QUIET
def median_interval(values: Sequence[float], kind: Kind) -> Estimate:
    """The median of what one process measured.

    Args:
        values: of its epochs, at least one.
        kind: what they are. Differences have no logarithms, even where all happen to be positive.
    """
    ordered, n = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    value = _middle(ordered, kind)
    if n < LEAST_RANKED or alike(ordered):
        return replace(_centre(values, kind), value=value)
    rank, share = _ranks(n)
    low = _between(ordered[rank - 1], ordered[rank], share, kind)
    high = _between(ordered[n - rank], ordered[n - rank - 1], share, kind)
    return Estimate(value, n, low, high)


@QUIET
def processes_interval(processes: Sequence[Sequence[float]], kind: Kind) -> Estimate:
    """The median of what several processes measured, each weighing the same; of one, ``median_interval``.

    Args:
        processes: for each the values of its epochs, at least one.
        kind: what they are.

    Returns:
        The estimate; n counts all values. No interval of times where many processes have few epochs.
    """
    if len(processes) == 1:
        return median_interval(processes[0], kind)
    centre = _centre([_median(values, kind) for values in processes], kind)
    if kind == "times" and _pulled(processes):
        centre = Estimate(centre.value, centre.n, reason=_FEW_EPOCHS)
    return replace(centre, n=sum(map(len, processes)), processes=len(processes))


@QUIET
def unpaired_interval(
    left: Sequence[Sequence[float]], right: Sequence[Sequence[float]], *, ratio: bool, kind: Kind = "times"
) -> Estimate:
    """Ratio or difference of the medians of two sides that no process measured both of, by Welch's t.

    Its degrees of freedom are at most twice those of the smaller side: without that bound it holds the truth in 92 % of
    simulations with three processes against ten and more.

    Args:
        left, right: for each process of that side the values of its epochs, at least one.
        ratio: left over right, all positive; else left less right.
        kind: what the values are.

    Returns:
        The estimate; n counts the values, and ``processes`` the processes, of the side that has fewer. No interval
        where that is fewer than ``LEAST_PROCESSES``, or where many have few epochs and the sides not equally many.
    """
    sides = [np.asarray([_median(values, kind) for values in side], dtype=np.float64) for side in (left, right)]
    if ratio:
        sides = [np.log(side) for side in sides]
    value, half = float(sides[0].mean() - sides[1].mean()), _welch(sides)
    n, processes = min(sum(map(len, side)) for side in (left, right)), min(map(len, sides))
    scale = exponential if ratio else float
    if processes < LEAST_PROCESSES:
        reason = f"{processes} of {LEAST_PROCESSES} processes a side"
    elif len({len(epochs) for side in (left, right) for epochs in side}) > 1 and (_pulled(left) or _pulled(right)):
        reason = _FEW_EPOCHS
    else:
        reason = "" if half else "equal values"
    if half is None or reason:
        return Estimate(scale(value), n, reason=reason, processes=processes)
    return Estimate(scale(value), n, scale(value - half), scale(value + half), processes=processes)


def _centre(values: Sequence[float], kind: Kind) -> Estimate:
    """Their mean with Student's t; of times and ratios on a logarithmic scale, unless one is 0."""
    return mean_interval(values) if kind == "differences" or min(values) <= 0 else ratio_interval(values)


def _pulled(processes: Sequence[Sequence[float]]) -> bool:
    """Whether what disturbs a process pulls their number out of its interval.

    A disturbance only ever slows down, and the median of one or two epochs does not withstand it. The number of many
    processes is then surely above the median of what they measure: of 20 with two epochs, one of ten disturbed, the
    interval would hold it in 71 % of simulations. Ratios and differences of paired times are disturbed both ways.
    """
    return len(processes) > MOST_SHORT and min(map(len, processes)) < LEAST_EPOCHS


def _median(values: Sequence[float], kind: Kind) -> float:
    return _middle(np.sort(np.asarray(values, dtype=np.float64)), kind)


def _middle(ordered: Array, kind: Kind) -> float:
    return _between(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2], 0.5, kind)


def _between(one: float, other: float, share: float, kind: Kind) -> float:
    """A share of the way from one value to another; of ratios by logarithms, so that swapped sides give the inverse."""
    if kind == "ratios" and one != other and min(one, other) > 0:
        return float(one ** (1 - share) * other**share)
    return float((1 - share) * one + share * other)


def _welch(sides: Sequence[Array]) -> float | None:
    """Half the width of the interval of the difference of two means; None where there are too few, or all are equal."""
    if min(map(len, sides)) < LEAST_PROCESSES:
        return None
    if all(map(alike, sides)):
        return None
    shares = [float(side.var(ddof=1)) / len(side) for side in sides]  # of its variance
    degrees = sum(shares) ** 2 / sum(share**2 / (len(side) - 1) for share, side in zip(shares, sides, strict=True))
    return student(min(degrees, 2 * (min(map(len, sides)) - 1))) * math.sqrt(sum(shares))


@cache
def _ranks(n: int) -> tuple[int, float]:
    """The largest k for which values k and n + 1 - k of n sorted ones hold the median in 95 % of samples; and how far
    from these towards the next two the interval ends.
    """
    from scipy.special import bdtr  # as in ``student``

    start = max(math.floor(n / 2 - 1.1 * math.sqrt(n)) - 1, 1)  # the normal distribution's is at n / 2 - .98 sqrt(n)
    rank = next(k for k in range(start, n) if 1 - 2 * float(bdtr(k, n, 0.5)) < CONFIDENCE)
    held, next_held = (1 - 2 * float(bdtr(k, n, 0.5)) for k in (rank - 1, rank))
    excess = (held - CONFIDENCE) / (held - next_held)
    return rank, (n - rank) * excess / (rank + (n - 2 * rank) * excess)
