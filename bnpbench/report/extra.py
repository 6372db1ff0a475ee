"""The time of a step, how much more of it a method takes than another, and where two methods take the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bnpbench.report.claims import paired_times
from bnpbench.report.groups import Group
from bnpbench.report.metrics import NoDataError, times
from bnpbench.report.view import Cell, View
from bnpbench.statistics.bootstrap import cells_interval


@dataclass(frozen=True)
class Crossing:
    """Where a method that costs more than another starts to cost less.

    Attributes:
        size: batch size, interpolated between ``low`` and ``high``; None where the order does not change there.
        low: the largest batch size at which it surely costs more (95 % interval of the paired differences).
        high: the smallest one above, at which it surely costs less.
        costs_more: whether it costs more at the smallest batch size that is looked at.
    """

    size: float | None
    low: int | None
    high: int | None
    costs_more: bool


def step_seconds(view: View, cell: Cell) -> Mapping[int, float]:
    """Epoch to seconds of training over steps; where steps are not known, to the median step."""
    try:
        seconds = times(view, cell, "train_seconds")
        found: Mapping[int, float]
        steps = view.series(cell, "steps")
        found = {epoch: s / steps[epoch] for epoch, s in seconds.items() if steps.get(epoch)}
        found = found or times(view, cell, "step_seconds_median")
    except NoDataError:
        return {}
    return {epoch: s for epoch, s in found.items() if s > 0}


def differences(view: View, cells: Sequence[Cell], base: Sequence[Cell]) -> list[list[float]]:
    """Seconds a step that ``cells`` take more than ``base``, for each seed, from epochs measured in turn."""
    others = {cell.seed: cell for cell in base if cell.ok}
    sides = {str(cell.seed): (cell, others[cell.seed]) for cell in cells if cell.ok and cell.seed in others}
    left = {seed: step_seconds(view, pair[0]) for seed, pair in sides.items()}
    right = {seed: step_seconds(view, pair[1]) for seed, pair in sides.items()}
    pairs = paired_times(view, sides, left, right) or ()
    return [[one - other for one, other in cell] for cell in pairs]


def measured_crossing(view: View, group: Group, method: str, other: str, sizes: Iterable[int]) -> Crossing | None:
    """Where ``method`` starts to take less time than ``other``; None with fewer than two batch sizes of both.

    Interpolated between what both take more than vanilla, where that was measured in turn with them: such costs are
    powers of the batch size, and their difference is none.
    """
    sizes = sorted(sizes)
    found = {size: differences(view, group.at(method, size), group.at(other, size)) for size in sizes}
    found = {size: cells for size, cells in found.items() if cells}
    if len(found) < 2:
        return None
    intervals = {size: cells_interval(cells) for size, cells in found.items()}
    low = max((size for size, e in intervals.items() if e.low is not None and e.low > 0), default=None)
    above = [size for size, e in intervals.items() if e.high is not None and e.high < 0 and size > (low or 0)]
    high = min(above, default=None)
    vanilla = group.base("vanilla")
    one, two = (
        {} if vanilla is None else extra_seconds(view, group, label, vanilla, sizes) for label in (method, other)
    )
    middle = {float(size): estimate.value for size, estimate in intervals.items()}
    if not one.keys() == two.keys() == middle.keys():
        one, two = middle, dict.fromkeys(middle, 0.0)
    kept = [size for size in middle if (low or 0) <= size <= (high or size)]
    return Crossing(crossing({size: one[size] for size in kept}, two), low, high, middle[min(kept)] > 0)


def extra_seconds(view: View, group: Group, method: str, base: str, sizes: Iterable[int]) -> dict[float, float]:
    """Batch size to the median of the seconds a step that a method takes more than ``base``."""
    found = {float(size): differences(view, group.at(method, size), group.at(base, size)) for size in sizes}
    return {size: median(value for cell in cells for value in cell) for size, cells in found.items() if cells}


def crossing(left: Mapping[float, float], right: Mapping[float, float]) -> float | None:
    """The first x at which left overtakes right or right left, between points that both have.

    Where both are positive, logarithms are interpolated: costs are powers of x.
    """
    common = sorted(set(left) & set(right))
    for before, after in pairwise(common):
        corners = left[before], right[before], left[after], right[after]
        if min(corners) > 0:
            one, two = (math.log(corners[i]) - math.log(corners[i + 1]) for i in (0, 2))
        else:
            one, two = corners[0] - corners[1], corners[2] - corners[3]
        if one * two < 0:
            share = one / (one - two) if math.isfinite(one - two) else 0.5
            return math.exp(math.log(before) + share * math.log(after / before))
        if one == 0 and two != 0:
            return before
    return None
