"""Numbers with their intervals: means over seeds, exponents over points. Those of times are in ``times``.

Seeds are few and paired, so Student's t of their differences (of the logarithms, for ratios) answers for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
LOST = 1e-14  # of a difference of numbers up to 1, or of a logarithm, by rounding
LEAST_JUDGED = 6  # values, of which one can be called an outlier
OUTLIER_SCORE = 3.5  # Iglewicz and Hoaglin's bound for the modified z-score
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
QUIET = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # absurd input: infinite or no number, as it is
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval.

    Attributes:
        value: the estimate; may be infinite.
        n: how many values (epochs, pairs, seeds) it rests on.
        low, high: the interval; None where there is none.
        reason: why there is no interval, such as ``n = 1``.
        processes: how many measured them, where they are times.
    """

    value: float
    n: int
    low: float | None = None
    high: float | None = None
    reason: str = ""
    processes: int = 1

    @property
    def width(self) -> float | None:
        """Half the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@QUIET
def mean_interval(values: Sequence[float], rounding: float = 0.0) -> Estimate:
    """The mean over seeds with Student's t interval.

    Args:
        values: one a seed, at least one. Infinite ones give no interval, unless all are the same.
        rounding: the standard deviation of their rounding, such as 1 / (examples sqrt(12)) of an accuracy; a few equal
            ones are no more alike than that.
    """
    n = len(values)
    if n == 1:
        return Estimate(values[0], n, reason="n = 1")
    if infinite := sum(map(math.isinf, values)):
        if len(set(values)) == 1:
            return Estimate(values[0], n, values[0], values[0])
        return Estimate(float(np.median(values)), n, reason=f"{infinite} of {n} infinite")
    sample = np.asarray(values, dtype=np.float64)
    if alike(sample) and not rounding:
        return Estimate(values[0], n, reason=f"{n} equal values")
    mean = float(np.add.reduce(sample)) / n
    variance = float(np.add.reduce((sample - mean) ** 2)) / (n - 1)
    half = student(n - 1) * max(math.sqrt(variance), rounding) / math.sqrt(n)
    return Estimate(mean, n, mean - half, mean + half)


def ratio_interval(ratios: Sequence[float], rounding: float = 0.0) -> Estimate:
    """The geometric mean over seeds of paired ratios, with Student's t interval of their logarithms.

    Args:
        ratios: one a seed, at least one.
        rounding: the standard deviation of their logarithms by rounding.
    """
    if any(ratio < 0 for ratio in ratios):
        return Estimate(float(np.median(ratios)), len(ratios), reason="a ratio below 0 has no logarithm")
    estimate = mean_interval([math.log(ratio) if ratio else -math.inf for ratio in ratios], rounding)
    low, high = (None if bound is None else exponential(bound) for bound in (estimate.low, estimate.high))
    value = ratios[0] if len(set(ratios)) == 1 else exponential(estimate.value)  # exactly, not by way of logarithms
    return Estimate(value, estimate.n, low, high, estimate.reason)


def power_law(columns: Sequence[Sequence[float]], values: Sequence[float]) -> list[Estimate]:
    """The exponents of ``value = c x_1^e_1 x_2^e_2 ...`` by least squares of the logarithms; Student's t intervals.

    Args:
        columns: x_1, x_2, ...; each as long as ``values``; all positive.
        values: positive.

    Returns:
        An estimate for each column, n counting the points; none where the points do not tell the exponents apart.
    """
    design = np.log(np.stack([np.full(len(values), math.e), *(np.asarray(c, dtype=np.float64) for c in columns)], 1))
    logs = np.log(np.asarray(values, dtype=np.float64))
    solution, _, rank, _ = np.linalg.lstsq(design, logs)
    free = len(values) - design.shape[1]
    if rank < design.shape[1] or free < 1:
        return []
    variance = float(np.sum((logs - design @ solution) ** 2)) / free
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    halves = student(free) * errors
    pairs = zip(solution[1:].tolist(), halves[1:].tolist(), strict=True)
    return [Estimate(exponent, len(values), exponent - half, exponent + half) for exponent, half in pairs]


@QUIET
def outliers(values: Sequence[float]) -> list[bool]:
    """Which values lie far from the median, by their modified z-score (median absolute deviation).

    Where more than half are equal, the mean absolute deviation stands in. Of fewer than six values none is judged.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < LEAST_JUDGED:
        return [False] * len(sample)
    deviations = np.abs(sample - _middle(np.sort(sample)))
    scale = 1.4826 * _middle(np.sort(deviations)) or 1.2533 * float(np.mean(deviations))
    return [bool(deviation > OUTLIER_SCORE * scale) for deviation in deviations]


def alike(sample: Array) -> bool:
    """Whether all values are equal, but for what arithmetic loses: .9 - .8 is not .8 - .7 to the last digit."""
    low, high = float(sample.min()), float(sample.max())
    return high - low <= LOST * max(1.0, abs(low), abs(high))


@cache
def student(degrees: float) -> float:
    """The quantile of Student's t that bounds a 95 % interval."""
    from scipy.special import stdtrit  # takes as long to import as all of ``check``, which needs no interval

    return float(stdtrit(degrees, TAILS[1]))


def exponential(value: float) -> float:
    """``exp``, infinite where it leaves the range of numbers."""
    return math.exp(value) if value < 700 else math.inf


def _middle(ordered: Array) -> float:
    """The median of sorted values."""
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
