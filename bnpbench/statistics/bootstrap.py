"""Medians of times with their bootstrap intervals.

Times come in pairs measured in turn; their median ratio is bootstrapped over at least six pairs, and first over the
processes that measured them where there were several: from process to process a ratio moves by more than its epochs
show (reports/run-to-run.txt). Resampling is seeded: the same data give the same report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from bnpbench.statistics.intervals import LEAST_PAIRS, QUIET, TAILS, Array, Estimate, exponential, middle

RESAMPLES = 10_001  # its 2.5 % and 97.5 % points are values, not means of two
_CELL_RESAMPLES = 2001
_LARGEST_RESAMPLE = 5000
_NUMBERS_AT_ONCE = 4_000_000  # that resamples of cells may take in memory
_SEED = 20_221_201


@QUIET
def median_interval(values: Sequence[float]) -> Estimate:
    """The median of times, or of ratios or differences of paired times, with its bootstrap interval.

    Args:
        values: finite, at least one.
    """
    return _median_intervals(np.asarray([values], dtype=np.float64))[0]


@QUIET
def unpaired_interval(left: Sequence[float], right: Sequence[float], *, ratio: bool) -> Estimate:
    """Ratio or difference of the medians of two independent samples, each resampled on its own."""
    samples = [np.sort(np.asarray(sample, dtype=np.float64)) for sample in (left, right)]
    medians = [middle(sample) for sample in samples]
    value, n = medians[0] / medians[1] if ratio else medians[0] - medians[1], min(map(len, samples))
    if n < LEAST_PAIRS:
        return Estimate(value, n, reason="n = 1" if n == 1 else f"n = {n} of {LEAST_PAIRS}")
    first, second = (resampled_medians(sample, stream) for stream, sample in enumerate(samples))
    return _between(value, n, first / second if ratio else first - second)


def cells_interval(cells: Sequence[Sequence[float]]) -> Estimate:
    """The median over the epochs of several cells, each measured by a process of its own.

    The interval is the wider of two on each side: over the epochs of these cells, and over the cells. Where processes
    differ by 3 % and their 20 epochs by 5 %, it held the truth in 83, 87 and 89 % of 1,000 simulations with 3, 4, 6.

    Args:
        cells: for each cell the values of its epochs: times, or ratios or differences of paired times.
    """
    return cells_intervals([cells])[0]


@QUIET
def cells_intervals(samples: Sequence[Sequence[Sequence[float]]]) -> list[Estimate]:
    """``cells_interval`` of each sample, computed together for those that have as many cells of as many epochs."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for place, cells in enumerate(samples):
        shapes.setdefault(tuple(map(len, cells)), []).append(place)
    found: dict[int, Estimate] = {}
    for lengths, places in shapes.items():
        values = np.array([[value for cell in samples[place] for value in cell] for place in places], dtype=np.float64)
        estimates = _median_intervals(values)
        if len(lengths) > 1 and sum(lengths) >= LEAST_PAIRS:
            size, (choices, counts) = _resampled_size(lengths), _distinct_choices(len(lengths))
            together = max(_NUMBERS_AT_ONCE // (len(choices) * len(lengths) * size), 1)
            for start in range(0, len(places), together):
                part = slice(start, start + together)
                medians = _medians_over_cells(values[part], lengths, size, choices)
                estimates[part] = _wider(estimates[part], medians, counts, len(lengths))
        found |= zip(places, estimates, strict=True)
    return [found[place] for place in range(len(samples))]


@QUIET
def change_interval(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> Estimate:
    """How much larger the new medians are, over cells measured in both runs; the interval as of ``cells_interval``.

    Args:
        base, new: for each cell its epochs' values (all positive).

    Returns:
        The ratio new / base: the geometric mean over cells of the ratios of medians; n counts values of a side.
    """
    pairs = [
        tuple(np.sort(np.asarray(side, dtype=np.float64)) for side in cell) for cell in zip(base, new, strict=True)
    ]
    logs = np.array([math.log(middle(after) / middle(before)) for before, after in pairs])
    value, n = float(np.mean(logs)), min(sum(map(len, base)), sum(map(len, new)))
    if n < LEAST_PAIRS:
        return Estimate(exponential(value), n, reason=f"n = {n} of {LEAST_PAIRS}")
    drawn = [
        np.log(resampled_medians(after, 2 * cell) / resampled_medians(before, 2 * cell + 1))
        for cell, (before, after) in enumerate(pairs)
    ]
    change = _between(value, n, np.mean(drawn, axis=0))
    if len(pairs) > 1:
        choices, counts = _distinct_choices(len(pairs))
        (change,) = _wider([change], (choices @ logs / len(pairs))[None], counts, len(pairs))
    low, high = (None if bound is None else exponential(bound) for bound in (change.low, change.high))
    return Estimate(exponential(value), n, low, high)


def resampled_medians(ordered: Array, stream: int = 0) -> Array:
    """The medians of RESAMPLES bootstrap resamples of sorted values; other streams are independent."""
    lower, upper = _middle_ranks(len(ordered), stream)
    return (ordered[lower] + ordered[upper]) / 2


def _median_intervals(values: Array) -> list[Estimate]:
    """The median of each row, (samples, values), with its bootstrap interval."""
    ordered, n = np.sort(values, axis=1), values.shape[1]
    medians = ((ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2).tolist()
    constant = (ordered[:, 0] == ordered[:, -1]).tolist()
    if n == 1:
        return [Estimate(median, n, reason="n = 1") for median in medians]
    if n < LEAST_PAIRS:
        bounds = [(None, None)] * len(medians)
    else:
        lower, upper, counts = _distinct_ranks(n)
        bounds = _bounds((ordered[:, lower] + ordered[:, upper]) / 2, counts).tolist()
    return [
        Estimate(median, n, median, median)
        if equal
        else Estimate(median, n, low, high, "" if low is not None else f"n = {n} of {LEAST_PAIRS}")
        for median, equal, (low, high) in zip(medians, constant, bounds, strict=True)
    ]


def _medians_over_cells(values: Array, lengths: Sequence[int], size: int, choices: Array) -> Array:
    """Medians of resamples of the cells, (samples, resamples).

    Args:
        values: (samples, epochs), cell by cell.
        lengths: epochs of each cell.
        size: how many values stand for a cell.
        choices: how often each resample takes each cell, (resamples, cells).
    """
    k = len(lengths)
    cells = np.split(values, np.cumsum(lengths)[:-1], axis=1)
    evenly = np.concatenate([np.sort(cell, axis=1)[:, _even_ranks(size, cell.shape[1])] for cell in cells], axis=1)
    order = np.argsort(evenly, axis=1)
    of_cell = np.arange(k)[:, None] == (order // size)[:, None, :]
    below = choices @ np.cumsum(of_cell, axis=2, dtype=np.float64)  # each choice's values up to a rank
    lower, upper = (np.argmax(below > middle, axis=2) for middle in ((k * size - 1) // 2, k * size // 2))
    ordered = np.take_along_axis(evenly, order, axis=1)
    medians: Array = (np.take_along_axis(ordered, lower, axis=1) + np.take_along_axis(ordered, upper, axis=1)) / 2
    return medians


def _wider(within: Sequence[Estimate], resamples: Array, counts: npt.NDArray[np.int64], k: int) -> list[Estimate]:
    """The estimates with their intervals widened to those over k cells; one of width 0 stays.

    The spread of k resampled cells is short by the factor sqrt((k - 1) / k), which is put back: on a logarithmic scale
    where all are positive, so that no time or ratio ends below 0.

    Args:
        within: over the epochs alone.
        resamples: (estimates, resamples), each of which occurred ``counts`` times.
    """
    root, middle = math.sqrt(k / (k - 1)), np.array([[estimate.value] for estimate in within])
    positive = (middle > 0) & (resamples.min(axis=1, keepdims=True) > 0)
    spread = np.where(positive, middle * (resamples / middle) ** root, middle + (resamples - middle) * root)
    return [
        estimate
        if estimate.low is None or estimate.high is None or estimate.low == estimate.high
        else Estimate(estimate.value, estimate.n, min(estimate.low, low), max(estimate.high, high))
        for estimate, (low, high) in zip(within, _bounds(spread, counts).tolist(), strict=True)
    ]


def _between(value: float, n: int, resamples: Array) -> Estimate:
    """The estimate with the bounds between which 95 % of the resamples lie."""
    low, high = _bounds(resamples, np.ones(len(resamples), dtype=np.int64)).tolist()
    return Estimate(value, n, low, high)


def _bounds(resamples: Array, counts: npt.NDArray[np.int64]) -> Array:
    """The two bounds between which 95 % of the resamples of the last axis lie; each occurred so many times."""
    order = np.argsort(resamples, axis=-1)
    upto = np.cumsum(counts[order], axis=-1)
    positions = [round(tail * (int(counts.sum()) - 1)) for tail in TAILS]
    places = np.stack([np.argmax(upto > position, axis=-1) for position in positions], axis=-1)
    return np.take_along_axis(np.take_along_axis(resamples, order, axis=-1), places, axis=-1)


def _resampled_size(lengths: Sequence[int]) -> int:
    """How many values stand for each of the cells, so that all weigh the same."""
    return min(max(lengths), max(_LARGEST_RESAMPLE // len(lengths), 20))


@cache
def _even_ranks(size: int, n: int) -> npt.NDArray[np.int64]:
    """So many ranks, spread evenly over n values."""
    return ((np.arange(size) + 0.5) / size * n).astype(np.int64)


@cache
def _distinct_choices(k: int) -> tuple[Array, npt.NDArray[np.int64]]:
    """How often a resample of k cells takes each of them: each choice once (up to 126 for k = 5), and its count."""
    chosen = np.random.default_rng((_SEED, k)).integers(0, k, (_CELL_RESAMPLES, k))
    rows = k * np.arange(_CELL_RESAMPLES)[:, None]
    taken = np.bincount((rows + chosen).ravel(), minlength=_CELL_RESAMPLES * k).reshape(-1, k)
    choices, counts = np.unique(taken, axis=0, return_counts=True)
    return choices.astype(np.float64), counts


@cache
def _middle_ranks(n: int, stream: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ranks of the middle value (or two) of each resample of n values.

    A resample takes ranks floor(n U) for n uniform U, so its k-th smallest is floor(n U_(k)); and U_(k) is
    Beta(k, n + 1 - k), the next one above it u + (1 - u) Beta(1, n - k). Nothing needs sorting.
    """
    random = np.random.default_rng((_SEED, n, stream))
    k = (n + 1) // 2
    middle = random.beta(k, n + 1 - k, RESAMPLES)
    above = middle if n % 2 else middle + (1 - middle) * random.beta(1, n - k, RESAMPLES)
    lower, upper = (np.minimum((n * share).astype(np.int64), n - 1) for share in (middle, above))
    return lower, upper


@cache
def _distinct_ranks(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The pairs of middle ranks that occur in the resamples, and how often; far fewer than resamples."""
    pairs, counts = np.unique(np.stack(_middle_ranks(n, 0)), axis=1, return_counts=True)
    return pairs[0], pairs[1], counts
