"""What each method costs and what it buys, over the baseline of its suite: the answer that a report begins with.

Cost: the time of a step over the baseline's, epoch beside epoch where both took turns. Gain: what the suite says, test
accuracy unless it says otherwise, at the end less the baseline's, seed by seed; the other way round where lower is
better. A word stands beside each and follows from its interval alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bnpbench.records.rows import metric as known
from bnpbench.registry import baselines
from bnpbench.report.data import Cell, Group, View, measured, tallied
from bnpbench.report.query import (
    INCOMPARABLE,
    Missing,
    beside,
    comparable,
    is_comparable,
    paired,
    rounding,
    step_seconds,
    value,
    whole,
)
from bnpbench.statistics.intervals import Estimate, mean_interval, ratio_interval
from bnpbench.statistics.times import processes_interval, unpaired_interval

LEVEL_COST = 0.05  # an interval that holds 1 and reaches no farther from it is level
LEVEL_GAIN = 0.01  # the same of a difference, around 0
LOSSES = ("test_loss", "train_loss")  # the first that was measured answers where the metric of the suite was not


@dataclass(frozen=True)
class Side:
    """A cost or a gain.

    Attributes:
        estimate: the number with its interval, or why there is none.
        word: what follows from the interval: ``dearer``, ``cheaper``, ``better``, ``worse``, ``level``, ``undecided``;
            ``not comparable`` of times that were disturbed; empty without a number.
        remark: what else a reader must know, such as that both sides were not measured in turn.
    """

    estimate: Estimate | Missing
    word: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Answer:
    """One method at one batch size.

    Attributes:
        group: the settings that tell it from its sisters; empty where it has none.
        batch_size: examples a step.
        method, kind: label, and kind.
        cost: time of a step over the baseline's.
        gain: of ``metric`` at the last epoch, less the baseline's; positive is better.
        target: the hardest of the suite's targets that the baseline reaches with every seed; None: none.
        seconds, steps: of training until that is reached, over the baseline's.
        memory: peak, over the baseline's.
    """

    group: str
    batch_size: int
    method: str
    kind: str
    cost: Side
    gain: Side
    target: float | None
    seconds: Side
    steps: Side
    memory: Side


def baseline_of(view: View, group: Group) -> str | None:
    """The label of the method that the others of a group are set against; None where it has no others.

    The one that the suite names; else the first of a kind that ratios are taken over; else the group's first.
    """
    named = view.document.baseline
    if named is not None and named in group.methods:
        return named
    if named is not None:
        return group.base(named)
    return next((label for kind in baselines() if (label := group.base(kind)) is not None), first_of(group))


def first_of(group: Group) -> str | None:
    """The first of several methods, which stands in where none is of a kind that ratios are taken over."""
    several = len(group.methods) > 1 and not any(map(group.base, baselines()))
    return next(iter(group.methods)) if several else None


def gain_metric(view: View) -> str:
    """What the gain of a suite is a difference of."""
    asked = view.document.metric
    measured = (name for name in (asked, *LOSSES) if any(view.series(cell, name) for cell in view.cells if cell.ok))
    return next(measured, asked)


def answers(view: View, groups: Iterable[Group] | None = None) -> Iterator[Answer]:
    """Of every method and batch size that has a baseline beside it and of which anything was run; None: all groups."""
    metric = gain_metric(view)
    for group in view.groups if groups is None else groups:
        base = baseline_of(view, group)
        for method, batch_size, cells in group.places():
            if base is not None and method != base:
                yield _answer(view, group, cells, group.at(base, batch_size), metric)


def _answer(view: View, group: Group, cells: Sequence[Cell], base: Sequence[Cell], metric: str) -> Answer:
    reached = [
        t for t in view.document.targets if all(value(view, cell, "reached", target=t) for cell in base if cell.ok)
    ]
    sign, untold = known(view.document.metric).sign, Side(Missing("no target that the baseline reaches"))
    target = max(reached, key=lambda t: sign * t, default=None)
    one, pairs = cells[0], beside(cells, base)
    alone = _alone(cells, base) if not pairs else ""
    place = (group.title, one.batch_size, one.label, one.kind)
    if alone:
        nothing = Side(Missing(alone))
        return Answer(*place, nothing, nothing, target, nothing, nothing, nothing)
    return Answer(
        *place,
        _cost(view, pairs),
        _gain(view, pairs, metric, [cell.status for cell in (*cells, *base) if cell.row and not cell.ok]),
        target,
        untold if target is None else _over(view, pairs, "seconds_to", target),
        untold if target is None else _over(view, pairs, "epochs_to", target),
        _over(view, pairs, "peak_memory_bytes"),
    )


def _alone(cells: Sequence[Cell], base: Sequence[Cell]) -> str:
    """Why no seed of a method has the baseline beside it."""
    if not base:
        return "no baseline at this batch size"
    for side, whose in ((cells, ""), (base, f"{base[0].label}: ")):
        whole, others = measured(side)
        if not whole:
            messages = {cell.text("message") for cell in side}
            message = f": {messages.pop()}" if len(messages) == 1 and messages != {""} else ""
            return f"{whose}{others}{message}"
    return "no seed in common with the baseline"


def _cost(view: View, pairs: Mapping[str, tuple[Cell, Cell]]) -> Side:
    left, right = ({seed: step_seconds(view, pair[place]) for seed, pair in pairs.items()} for place in (0, 1))
    sides = [[list(series.values()) for series in side.values() if series] for side in (left, right)]
    if not all(sides):
        return Side(Missing("no time of a step"))
    in_turn = paired(view, pairs, left, right)
    if isinstance(in_turn, Missing):
        estimate, remark = unpaired_interval(sides[0], sides[1], ratio=True), in_turn.reason
    else:
        estimate, remark = processes_interval([[one / other for one, other in cell] for cell in in_turn], "ratios"), ""
    estimate = comparable(estimate, (cell for pair in pairs.values() for cell in pair))
    word = _word(estimate, 1.0, ("cheaper", "dearer"), (1 / (1 + LEVEL_COST), 1 + LEVEL_COST))
    return Side(estimate, word, remark)


def _gain(view: View, pairs: Mapping[str, tuple[Cell, Cell]], metric: str, lost: Sequence[str]) -> Side:
    """Of the seeds that both ended; where another diverged they are the lucky ones, and decide nothing."""
    sign = known(metric).sign
    found, reasons = _both(view, pairs, metric)
    if not found:
        return Side(Missing(tallied(reasons)))
    gains = [sign * (one - other) for _, (one, other) in found]
    if not all(map(math.isfinite, gains)):
        return Side(Missing(f"{metric} is not finite"))
    estimate = mean_interval(gains, max(rounding(view, metric, pair) for pair, _ in found))
    shortened = next((f"after {cell.shortened}" for pair in pairs.values() for cell in pair if cell.shortened), "")
    remark = "; ".join(filter(None, (tallied(reasons), tallied(lost), shortened)))
    word = _word(estimate, 0.0, ("worse", "better"), (-LEVEL_GAIN, LEVEL_GAIN))
    return Side(estimate, "undecided" if "diverged" in lost else word, remark)


def _over(view: View, pairs: Mapping[str, tuple[Cell, Cell]], metric: str, target: float | None = None) -> Side:
    """The geometric mean over seeds of what each pair holds; infinite where a seed never gets there."""
    found, reasons = _both(view, pairs, metric, target)
    found = [(pair, numbers) for pair, numbers in found if numbers[1] and math.isfinite(numbers[1])]
    if not found:
        return Side(Missing(tallied(reasons) or "0 on the baseline's side"))
    rounded = max(rounding(view, metric, pair, numbers) if numbers[0] else 0.0 for pair, numbers in found)
    estimate = ratio_interval([one / other for _, (one, other) in found], rounded)
    cells = (cell for pair, _ in found for cell in pair)
    return Side(comparable(estimate, cells, metric), remark=tallied(reasons))


def _both(
    view: View, pairs: Mapping[str, tuple[Cell, Cell]], metric: str, target: float | None = None
) -> tuple[list[tuple[tuple[Cell, Cell], tuple[float, float]]], list[str]]:
    """The pairs that both have a number, with these; and why the others have none."""
    both, reasons = list[tuple[tuple[Cell, Cell], tuple[float, float]]](), list[str]()
    for pair in pairs.values():
        found = [value(view, cell, metric, target=target) for cell in pair]
        if target is not None:
            found = [whole(cell, number, metric) for cell, number in zip(pair, found, strict=True)]
        one, other = found
        if isinstance(one, Missing) or isinstance(other, Missing):
            reasons.append(next(missing.reason for missing in found if isinstance(missing, Missing)))
        else:
            both.append((pair, (one, other)))
    return both, reasons


def _word(estimate: Estimate, even: float, sides: tuple[str, str], level: tuple[float, float]) -> str:
    """What an interval says: below ``even``, above it, about it and within ``level``, or nothing."""
    low, high = estimate.low, estimate.high
    if not is_comparable(estimate):
        return INCOMPARABLE
    if low is None or high is None:
        return "undecided"
    if high < even or low > even:
        return sides[low > even]
    return "level" if level[0] <= low and high <= level[1] else "undecided"
