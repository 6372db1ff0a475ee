"""The table that a report begins with: what each method costs and what it buys."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bnpbench.records.rows import metric as known
from bnpbench.records.rows import spoken
from bnpbench.registry import baselines
from bnpbench.report.answer import Answer, Side, answers, baseline_of, first_of, gain_metric
from bnpbench.report.data import View
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import ALONE, INCOMPARABLE, Missing, is_comparable
from bnpbench.results import FINISHED
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import dash, decimals, significant, some

TITLE = "Cost and gain"
_MARK = "†"  # of a time that is not comparable
_MOST_DIGITS = 9  # behind the point
_SAID = {
    r"n = 1": "one {one}: no {what} can be judged; run three or more",
    r"(\d+ )?equal values": "{0}equal values show no spread to judge a {what} by; run more {many}",
    r"(\d+) of (\d+) processes a side": "a side has {0} of the {1} processes that times measured apart need; run more "
    "seeds, or let the methods take turns (interleave)",
    r"fewer than (\d+) epochs a process": "fewer than {0} epochs a process: no time can be judged; run more",
    r"not measured in turn": "the methods did not take turns, so a drift of the machine is in the time; interleave "
    "lets them",
    rf"{INCOMPARABLE}: (.*)": f"{_MARK} times are {INCOMPARABLE}: {{0}}; {ALONE}",
    r"after (\d+) of (\d+) epochs?": "the gain is that after {0} of {1} epochs; run without --epochs",
    r"no baseline at this batch size": "the baseline has no such batch size; add it to the suite",
    r"no seed in common with the baseline": "the baseline was measured with other seeds; run both with the same",
}
"""What is said of a reason, and what to do."""


def cost_and_gain(view: View) -> Section | None:
    """A row a method and batch size; None where nothing was run."""
    bases = list(dict.fromkeys(baseline_of(view, group) for group in view.groups))
    found = list(answers(view))
    if not bases:
        return None
    if not found:
        nothing = f"nothing to set the method against: another in the suite would be, such as {_kinds()}"
        return Section(TITLE, (nothing if bases == [None] else "no method but the baseline was run", *_ended(view)))
    base = bases[0] if len(bases) == 1 else "the baseline"
    metric = gain_metric(view)
    targets = {answer.target for answer in found} - {None}
    target = f"{next(iter(targets))}" if len(targets) == 1 else "target"
    what = (f"seconds to {target}", f"steps to {target}", "memory")
    seconds, steps, memory = (f"{one} over {base}" for one in what)
    columns: dict[str, list[str | Entry]] = {
        "settings": [answer.group for answer in found],
        "N": [str(answer.batch_size) for answer in found],
        "method": [answer.method for answer in found],
        f"time a step over {base}": [_ratio(answer, "time a step", answer.cost) for answer in found],
        "cost": [answer.cost.word for answer in found],
        f"{spoken(metric)} {'less' if known(metric).better == 'higher' else 'below'} {base}'s": [
            _difference(answer, metric) for answer in found
        ],
        "gain": [answer.gain.word for answer in found],
        seconds: [_to_target(answer, "seconds", answer.seconds, len(targets)) for answer in found],
        steps: [_to_target(answer, "steps", answer.steps, len(targets)) for answer in found],
        memory: [_ratio(answer, "peak memory", answer.memory) for answer in found],
    }
    optional = (memory, steps, seconds, "settings")
    unused = [name for name in optional if not any(_told(cell) for cell in columns[name])]
    spare = [name for name in optional[:3] if name not in unused]
    rows = tuple(zip(*(cells for name, cells in columns.items() if name not in unused), strict=True))
    headings = tuple(name for name in columns if name not in unused)
    table = Table("", headings, rows, tuple(_notes(view, found, base)), None, tuple(_reasons(found)), tuple(spare))
    return Section(TITLE, tables=(table,))


def _ended(view: View) -> Iterable[str]:
    """What became of cells that are finished without a measurement, and why; each once for all seeds."""
    cells = [cell for cell in view.cells if cell.status in FINISHED and not cell.ok]
    return dict.fromkeys(
        f"{cell.label} at N = {cell.batch_size}: {': '.join(filter(None, (cell.status, cell.text('message'))))}"
        for cell in cells
    )


def _kinds() -> str:
    return " or ".join(f'"{kind}"' for kind in baselines())


def _told(cell: str | Entry) -> bool:
    return cell.value is not None if isinstance(cell, Entry) else bool(cell)


def _place(answer: Answer) -> Place:
    return Place("cost and gain", answer.group, answer.method, answer.batch_size)


def _missing(answer: Answer, quantity: str, missing: Missing) -> Entry:
    """No number: what became of it in a word, which the reasons above the table say in full."""
    return replace(_place(answer).empty(quantity, missing.reason), shown=dash(missing.reason.partition(":")[0]))


def _ratio(answer: Answer, what: str, side: Side) -> Entry:
    quantity = f"{what} over the baseline's"
    if isinstance(side.estimate, Missing):
        return _missing(answer, quantity, side.estimate)
    return _shown(answer, quantity, side, side.estimate, 2, "", even=1.0)


def _difference(answer: Answer, metric: str) -> Entry:
    sides = "method − baseline" if known(metric).better == "higher" else "baseline − method"
    quantity = f"difference of {metric}, {sides}"
    if isinstance(answer.gain.estimate, Missing):
        return _missing(answer, quantity, answer.gain.estimate)
    return _shown(answer, quantity, answer.gain, answer.gain.estimate, 3, "+", even=0.0)


def _to_target(answer: Answer, what: str, side: Side, targets: int) -> Entry:
    entry = _ratio(answer, f"{what} to {answer.target}", side)
    if isinstance(side.estimate, Missing):
        return replace(entry, shown=dash())
    text = "never" if math.isinf(side.estimate.value) else entry.shown
    return replace(entry, shown=f"{text} ({answer.target})" if targets > 1 else text)


def _shown(
    answer: Answer, quantity: str, side: Side, estimate: Estimate, digits: int, sign: str, *, even: float
) -> Entry:
    """The number with its interval, in more digits where the interval asks for it or would seem to hold ``even``."""
    if estimate.width:
        digits = max(digits, min(decimals(estimate.width, 1), digits + 1))
        bound = estimate.low if estimate.value > even else estimate.high  # the nearer one
        if bound is not None and bound != even and (bound > even) == (estimate.value > even):
            while round(bound, digits) == even and digits < _MOST_DIGITS:
                digits += 1
    value, *bounds = (
        format(round(number, digits) + 0.0, f"{sign},.{digits}f") if math.isfinite(number) else significant(number)
        for number in (estimate.value, estimate.low, estimate.high)
        if number is not None
    )
    interval = f" [{', '.join(bounds)}]" if bounds else "" if is_comparable(estimate) else f" {_MARK}"
    text = "; ".join(filter(None, (side.word, side.remark)))
    return _place(answer).estimate(quantity, estimate, text, shown=value + interval)


def _reasons(found: Sequence[Answer]) -> Iterator[str]:
    """Where numbers or intervals are lacking, why, and what to do; a sentence a reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for answer in found:
        for side, what in ((answer.cost, "time"), (answer.gain, "gain")):
            missing = isinstance(side.estimate, Missing)
            for reason in filter(None, (side.estimate.reason, *side.remark.split("; "))):
                said = _sentence(reason, what)
                key = (said, "") if said else ("", reason if missing else f"{what}: {reason}")
                where.setdefault(key, []).append(f"{answer.method} at N = {answer.batch_size}")
    for (said, reason), places in where.items():
        whose = some(dict.fromkeys(places), 4)
        if not said:
            yield f"{whose}: {reason}."
        else:
            yield f"{said[0].upper()}{said[1:]}{'' if len(set(places)) == len(found) else f' ({whose})'}."


def _sentence(reason: str, what: str) -> str:
    """What is said of a reason; empty where it says enough itself."""
    one, many = ("epoch", "epochs or seeds") if what == "time" else ("seed", "seeds")
    for pattern, said in _SAID.items():
        if (match := re.fullmatch(pattern, reason)) is not None:
            return said.format(*match.groups(""), what=what, one=one, many=many)
    return ""


def _notes(view: View, found: Sequence[Answer], base: str | None) -> Iterator[str]:
    firsts = [first for group in view.groups if (first := first_of(group)) is not None]
    if firsts and view.document.baseline is None:
        names = some(dict.fromkeys(firsts))
        yield f"Without {_kinds()} the first method is the baseline, {names}; [report] names another."
    estimates = [answer.cost.estimate for answer in found if isinstance(answer.cost.estimate, Estimate)]
    processes = {estimate.processes for estimate in estimates if estimate.low is not None}
    if processes == {1}:
        yield "Times of one process each: another may differ by more than its interval; more seeds would tell."
    yield f"95 % intervals. Level: as {base}, to within 5 % of the time or 0.01 of the gain."
