"""What is paid for reaching a target: steps against the time of one, and memory against the time of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bnpbench.records.rows import metric as known
from bnpbench.records.rows import spoken
from bnpbench.report.data import Cell, Group, View, number
from bnpbench.report.figures.answer import beyond, bounded, room
from bnpbench.report.figures.curves import about
from bnpbench.report.figures.model import LARGEST, Axis, Cross, CrossPanel, Figure
from bnpbench.report.query import Missing, comparable, is_comparable, rounding, step_seconds, value, whole
from bnpbench.statistics.intervals import Estimate, mean_interval
from bnpbench.statistics.times import processes_interval
from bnpbench.text import some

_TOGETHER = 3  # batch sizes of a figure, each of which has two panels
_MIB = 2**20
_KEPT = (
    "What is kept from step to step: the optimizer's state (momentum, moments, matrices) and the preconditioner's; "
    "weights, gradients and activations are not in it."
)


@dataclass(frozen=True)
class _Reached:
    """The cells of one method at one batch size, and those of them that reached a target."""

    method: str
    batch_size: int
    cells: Sequence[Cell]
    there: Sequence[Cell]
    asked: int

    @property
    def name(self) -> str:
        """How a note calls it."""
        return f"{self.method} at N = {self.batch_size}"

    @property
    def every(self) -> bool:
        """Whether all seeds did."""
        return len(self.there) == self.asked


_Ask = Callable[[_Reached], Estimate | Missing]
_Told = dict[tuple[str, str], list[str]]  # methods that a panel leaves out or marks, by what is done and the reason


def pareto(view: View, group: Group) -> Iterable[Figure]:
    """For each target a figure, of at most three batch sizes; nothing where fewer than two methods reach it."""
    for target in view.document.targets:
        places = [_reached(view, *place, number(target)) for place in group.places()]
        sizes = list(dict.fromkeys(place.batch_size for place in places))
        for start in range(0, len(sizes), _TOGETHER):
            some_sizes = sizes[start : start + _TOGETHER]
            yield from _figure(view, [place for place in places if place.batch_size in some_sizes], number(target))


def _figure(view: View, places: Sequence[_Reached], target: float) -> Iterator[Figure]:
    def steps(place: _Reached) -> Estimate | Missing:
        return _over_seeds(view, place.there, lambda cell: value(view, cell, "steps_to", target=target), "steps_to")

    def seconds(place: _Reached) -> Estimate | Missing:
        return _over_seeds(view, place.there, lambda cell: value(view, cell, "seconds_to", target=target), "seconds_to")

    def of_step(place: _Reached) -> Estimate | Missing:
        found = [series for cell in place.there if (series := list(step_seconds(view, cell).values()))]
        return comparable(processes_interval(found, "times"), place.there) if found else Missing("no time of a step")

    there = [cell for place in places for cell in place.there]
    peaks, kept = (any(not isinstance(ask(view, cell), Missing) for cell in there) for ask in (_peak, _kept))
    peaks |= not kept

    def memory(place: _Reached) -> Estimate | Missing:
        if peaks:
            return _over_seeds(view, place.there, lambda cell: _peak(view, cell), "")
        return _over_seeds(view, place.there, lambda cell: _kept(view, cell), "optimizer_state_bytes")

    sizes = list(dict.fromkeys(place.batch_size for place in places))
    space = "peak memory, MiB" if peaks else "memory that optimizer and method keep, MiB"
    words = (
        (f"steps to {target:g}", steps, "seconds a step", of_step),
        (space, memory, f"seconds to {target:g}", seconds),
    )
    told: _Told = {}
    panels = [
        panel
        for along, x, upwards, y in words
        for size in sizes
        if (panel := _panel([place for place in places if place.batch_size == size], along, x, upwards, y, told))
        is not None
    ]
    if panels:
        kept_ones = any(panel.x.label == space for panel in panels) and not peaks
        notes = (*_notes(places, panels, told), *([_KEPT] if kept_ones else []), *about(view))
        title = f"What it takes to reach {spoken(view.document.metric)} {target:g}"
        open_ones = any(cross.x_interval or cross.y_interval for panel in panels for cross in panel.crosses)
        spread = "95 % intervals" if open_ones else ""
        yield Figure("pareto", view.suite, view.id, "pareto", title, tuple(panels), notes, spread=spread)


def _reached(view: View, method: str, batch_size: int, cells: Sequence[Cell], target: float) -> _Reached:
    answers = [(cell, whole(cell, value(view, cell, "reached", target=target), "reached")) for cell in cells]
    known = [(cell, answer) for cell, answer in answers if not isinstance(answer, Missing)]
    return _Reached(method, batch_size, cells, [cell for cell, answer in known if answer], len(known))


def _panel(places: Sequence[_Reached], along: str, x: _Ask, upwards: str, y: _Ask, told: _Told) -> CrossPanel | None:
    """The methods at one batch size that have both numbers; None where fewer than two have. Others are told."""
    crosses, front = list[Cross](), list[tuple[float, float]]()
    for place in places:
        one, other = x(place), y(place)
        if isinstance(one, Missing) or isinstance(other, Missing):
            if place.there:  # else it is told once
                reason = next(number.reason for number in (one, other) if isinstance(number, Missing))
                told.setdefault((f"Not shown over {along}", reason), []).append(place.name)
            continue
        if not ((one.value == 0 or _positive(one.value)) and _positive(other.value)):
            told.setdefault((f"Not shown over {along}", "out of all bounds"), []).append(place.name)
            continue
        for estimate in (one, other):
            if estimate.low is None:
                told.setdefault(("Open, without an interval", estimate.reason), []).append(place.name)
        label = "" if place.every else f"{len(place.there)} of {place.asked} seeds"
        arms = bounded(one, min(one.value, 1 / LARGEST)), bounded(other, 1 / LARGEST)
        crosses.append(Cross(place.method, label, one.value, other.value, *arms))
        if place.every and is_comparable(one) and is_comparable(other):  # seeds that alone reach it are the lucky ones
            front.append((one.value, other.value))
    if len(crosses) < 2:
        alone = [place.name for place in places if place.method in {cross.method for cross in crosses}]
        if alone:
            told.setdefault((f"Not shown over {along}", "no other has both numbers"), []).extend(alone)
        return None
    xs = _axis(along, [(cross.x, cross.x_interval) for cross in crosses])
    ys = _axis(upwards, [(cross.y, cross.y_interval) for cross in crosses])
    return CrossPanel(f"batch size {places[0].batch_size}", xs, ys, None, tuple(crosses), front_of(front))


def front_of(points: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points that no other is below both ways, from left to right."""
    front = list[tuple[float, float]]()
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return tuple(front)


def _positive(value: float) -> bool:
    """Whether a logarithmic axis has a place for it."""
    return 1 / LARGEST < value < LARGEST


def _axis(label: str, points: Iterable[tuple[float, tuple[float, float] | None]]) -> Axis:
    """Logarithmic, unless a point is at 0."""
    pairs = list(points)
    values, arms = [value for value, _ in pairs], [end for _, ends in pairs for end in ends or ()]
    if not all(values):
        return Axis(label, limits=room(values, arms, least=max(values) or 1.0))
    low, high = room(list(map(math.log, values)), list(map(math.log, arms)), least=math.log(2))
    return Axis(label, log=True, limits=(math.exp(low), math.exp(high)))


def _over_seeds(
    view: View, cells: Sequence[Cell], ask: Callable[[Cell], float | Missing], metric: str
) -> Estimate | Missing:
    """The mean over seeds with its interval, if it can be compared; Missing where none has a number."""
    answers = [(cell, ask(cell)) for cell in cells]
    found = [(cell, answer) for cell, answer in answers if not isinstance(answer, Missing)]
    if not found:
        return Missing(", ".join(dict.fromkeys(answer.reason for _, answer in answers if isinstance(answer, Missing))))
    if metric and known(metric).exact and len({answer for _, answer in found}) == 1:  # it has no spread
        return Estimate(found[0][1], len(found), found[0][1], found[0][1])
    rounded = max(rounding(view, metric, [cell]) for cell, _ in found)
    return comparable(mean_interval([answer for _, answer in found], rounded), [cell for cell, _ in found], metric)


def _peak(view: View, cell: Cell) -> float | Missing:
    """MiB of the steps, and what a CUDA graph keeps beside them."""
    peak = value(view, cell, "peak_memory_bytes")
    if isinstance(peak, Missing):
        return peak
    return (peak + (cell.count("graph_memory_bytes") or 0)) / _MIB if peak else Missing("no peak_memory_bytes")


def _kept(view: View, cell: Cell) -> float | Missing:
    """MiB of the states of optimizer and preconditioner: where cells share a process no more is known of each."""
    optimizer, method = (value(view, cell, name) for name in ("optimizer_state_bytes", "method_state_bytes"))
    if isinstance(optimizer, Missing):
        return optimizer
    if isinstance(method, Missing):  # of what has no preconditioner, or could not be counted
        if isinstance(value(view, cell, "flops_method_executed"), Missing):
            return method
        method = 0.0
    return (optimizer + method) / _MIB


def _notes(places: Sequence[_Reached], panels: Sequence[CrossPanel], told: _Told) -> Iterator[str]:
    yield "Means over the seeds that reached it; a step's time is its epochs' median. Left and below is better."
    if any(panel.front for panel in panels):
        yield "Front: the methods that none is better than both ways, of those whose seeds all reached it."
    if never := [f"{p.name} ({len(p.there)} of {p.asked} seeds reached it)" for p in places if not p.there]:
        yield f"Not shown: {some(never, 6)}."
    for (head, reason), names in told.items():
        whose = dict.fromkeys(names)
        every = len(whose) == sum(bool(place.there) for place in places)
        yield f"{head} ({reason}): {'all' if every else some(whose, 6)}."
    yield from dict.fromkeys(note for panel in panels for note in beyond(panel.crosses, panel.x, panel.y))
