"""The answer as a picture: what each method costs along, what it buys upwards, and the baseline where both begin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bnpbench.records.rows import metric as known
from bnpbench.records.rows import spoken
from bnpbench.report.answer import Answer, answers, baseline_of, gain_metric
from bnpbench.report.data import Group, View
from bnpbench.report.figures.curves import about
from bnpbench.report.figures.model import LARGEST, Axis, Cross, CrossPanel, Figure
from bnpbench.report.query import Missing
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import some

_TOGETHER = 4, 12  # batch sizes, points: of more the labels do not fit, and each batch size has its panel
_STEPS = (1.0, 2.0, 2.5, 5.0)
_TICKS = 6


def cost_and_gain(view: View, group: Group) -> Iterable[Figure]:
    """One panel of few points, else one for each batch size; nothing where no method has both numbers."""
    found = list(answers(view, [group]))
    base = baseline_of(view, group)
    placed = [(answer, cross) for answer in found if (cross := _cross(answer)) is not None]
    if base is None or not placed:
        return
    metric = gain_metric(view)
    relation = "less" if known(metric).better == "higher" else "below"
    crosses = [cross for _, cross in placed]
    x = _costs(f"time of a step over {base}'s (dearer →)", crosses)
    y = _gains(f"{spoken(metric)} {relation} {base}'s (better →)", crosses)
    sizes = dict.fromkeys(answer.batch_size for answer, _ in placed)
    if len(sizes) <= _TOGETHER[0] and len(placed) <= _TOGETHER[1]:
        labelled = crosses if len(sizes) > 1 else [replace(cross, label="") for cross in crosses]
        panels = [CrossPanel("" if len(sizes) > 1 else f"batch size {next(iter(sizes))}", x, y, base, tuple(labelled))]
    else:
        panels = [
            CrossPanel(
                f"batch size {size}",
                x,
                y,
                base,
                tuple(replace(cross, label="") for answer, cross in placed if answer.batch_size == size),
            )
            for size in sizes
        ]
    notes = (*_notes(found, crosses, x, y), *about(view))
    title = f"What each method costs and what it buys, over {base}"
    yield Figure(
        "cost-and-gain",
        view.suite,
        view.id,
        "cost-and-gain",
        title,
        tuple(panels),
        notes,
        shared=True,
        spread="95 % intervals" if any(c.x_interval or c.y_interval for c in crosses) else "",
    )


def _cross(answer: Answer) -> Cross | None:
    """The two numbers with their intervals; None where one is missing or no axis has room for it."""
    cost, gain = answer.cost.estimate, answer.gain.estimate
    if isinstance(cost, Missing) or isinstance(gain, Missing):
        return None
    if not (1 / LARGEST < cost.value < LARGEST and abs(gain.value) < LARGEST):
        return None
    arms = bounded(cost, 1 / LARGEST), bounded(gain, -LARGEST)
    return Cross(answer.method, f"N = {answer.batch_size}", cost.value, gain.value, *arms)


def bounded(estimate: Estimate, least: float) -> tuple[float, float] | None:
    """The interval of an estimate as far as an axis goes; None where it has none."""
    low, high = estimate.low, estimate.high
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return None
    return max(low, least), min(high, LARGEST)


def _costs(label: str, crosses: Sequence[Cross]) -> Axis:
    """A logarithmic axis about 1, on which an interval of many times the ratios leaves room for the others."""
    points = [0.0, *(math.log(cross.x) for cross in crosses)]
    arms = [math.log(end) for cross in crosses for end in cross.x_interval or ()]
    low, high = room(points, arms, least=math.log(2))
    limits = math.exp(low), math.exp(high)
    if high - low < math.log(6):
        at = tuple(tick for tick in _linear(*limits) if tick > 0)
    else:
        decades = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
        every = [factor * 10.0**power for power in decades for factor in (1.0, 2.0, 5.0)]
        at = tuple(tick for tick in every if limits[0] <= tick <= limits[1])
        if len(at) > 2 * _TICKS:
            at = tuple(tick for tick in at if math.log10(tick).is_integer())
    return Axis(label, log=True, at=at, limits=limits)


def _gains(label: str, crosses: Sequence[Cross]) -> Axis:
    points = [0.0, *(cross.y for cross in crosses)]
    arms = [end for cross in crosses for end in cross.y_interval or ()]
    limits = room(points, arms, least=0.02)
    return Axis(label, at=tuple(_linear(*limits)), limits=limits)


def room(points: Sequence[float], arms: Sequence[float], least: float) -> tuple[float, float]:
    """Room for all points, and for arms that reach no farther beyond them than they lie apart, or ``least``."""
    low, high = min(points), max(points)
    reach = max(high - low, least)
    low, high = (
        max(low - reach, min([low, *arms])),
        min(high + reach, max([high, *arms])),
    )
    pad = 0.08 * max(high - low, least / 10)
    return low - pad, high + pad


def _linear(low: float, high: float) -> Iterator[float]:
    """Round numbers from low to high, at most ``_TICKS`` or so."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in _STEPS if factor * power >= rough), 10 * power)
    for place in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield float(f"{place * step:.10g}")


def _notes(found: Sequence[Answer], crosses: Sequence[Cross], x: Axis, y: Axis) -> Iterator[str]:
    yield from beyond(crosses, x, y)
    places: dict[tuple[str, str], list[str]] = {}
    for answer in found:
        place = f"{answer.method} at N = {answer.batch_size}"
        for side, what in ((answer.cost, "time"), (answer.gain, "gain")):
            if isinstance(side.estimate, Missing):
                places.setdefault(("Not shown", f" ({side.estimate.reason})"), []).append(place)
                break
            if side.estimate.low is None:
                reason = f" ({side.estimate.reason})" if side.estimate.reason else ""
                places.setdefault((f"Open, no interval of the {what}", reason), []).append(place)
            if side.remark:
                places.setdefault((f"{what.capitalize()}, {side.remark}", ""), []).append(place)
    for (what, reason), whose in places.items():
        yield f"{what}: {'all' if len(whose) == len(found) > 1 else some(whose, 4)}{reason}."


def beyond(crosses: Iterable[Cross], x: Axis, y: Axis) -> list[str]:
    """A sentence on intervals that reach farther than the axes, if any do."""
    arms = [(axis.limits, arm) for one in crosses for axis, arm in ((x, one.x_interval), (y, one.y_interval))]
    cut = any(arm and limits and (arm[0] < limits[0] or arm[1] > limits[1]) for limits, arm in arms)
    return ["An interval that reaches the edge goes on beyond it."] if cut else []
