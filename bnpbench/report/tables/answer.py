"""The table that a report begins with: what each method costs and what it buys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bnpbench.registry import baselines
from bnpbench.report.answer import Answer, Side, answers, baseline_of, gain_metric
from bnpbench.report.data import View
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import Missing, is_comparable
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import dash, decimals, significant, some

TITLE = "Cost and gain"
_MARK = "†"  # of a time that is not comparable


def cost_and_gain(view: View) -> Section | None:
    """A row a method and batch size; None where nothing was run."""
    bases = list(dict.fromkeys(baseline_of(view, group) for group in view.groups))
    found = list(answers(view))
    if not bases:
        return None
    if not found:
        kinds = " or ".join(f'"{kind}"' for kind in baselines())
        nothing = f"nothing to set the methods against: {kinds} in the suite, or [report] baseline, would be"
        return Section(TITLE, (nothing if bases == [None] else "no method but the baseline was run",))
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
        f"{metric.replace('_', ' ')} {'less' if metric.endswith('accuracy') else 'below'} {base}'s": [
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
    table = Table("", headings, rows, tuple(_notes(found, base)), None, tuple(_reasons(found)), tuple(spare))
    return Section(TITLE, tables=(table,))


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
    return _shown(answer, quantity, side, side.estimate, 2, "")


def _difference(answer: Answer, metric: str) -> Entry:
    quantity = f"{metric} over the baseline's" if metric.endswith("accuracy") else f"{metric} below the baseline's"
    if isinstance(answer.gain.estimate, Missing):
        return _missing(answer, quantity, answer.gain.estimate)
    return _shown(answer, quantity, answer.gain, answer.gain.estimate, 3, "+")


def _to_target(answer: Answer, what: str, side: Side, targets: int) -> Entry:
    entry = _ratio(answer, f"{what} to {answer.target}", side)
    if isinstance(side.estimate, Missing):
        return replace(entry, shown=dash())
    text = "never" if math.isinf(side.estimate.value) else entry.shown
    return replace(entry, shown=f"{text} ({answer.target})" if targets > 1 else text)


def _shown(answer: Answer, quantity: str, side: Side, estimate: Estimate, digits: int, sign: str) -> Entry:
    """The number with its interval, in one digit more where the interval asks for it."""
    if estimate.width:
        digits = max(digits, min(decimals(estimate.width, 1), digits + 1))
    value, *bounds = (
        format(round(number, digits) + 0.0, f"{sign},.{digits}f") if math.isfinite(number) else significant(number)
        for number in (estimate.value, estimate.low, estimate.high)
        if number is not None
    )
    interval = f" [{', '.join(bounds)}]" if bounds else "" if is_comparable(estimate) else f" {_MARK}"
    text = "; ".join(filter(None, (side.word, side.remark)))
    return _place(answer).estimate(quantity, estimate, text, shown=value + interval)


def _reasons(found: Sequence[Answer]) -> Iterator[str]:
    """Where numbers or intervals are lacking, and why; a sentence a reason."""
    where: dict[str, list[str]] = {}
    for answer in found:
        place = f"{answer.method} at N = {answer.batch_size}"
        for side, what in ((answer.cost, "time"), (answer.gain, "gain")):
            if isinstance(side.estimate, Missing):
                where.setdefault(side.estimate.reason, []).append(place)
                continue
            reasons = filter(None, (side.estimate.reason, side.remark))
            if text := ", ".join(reasons):
                mark = "" if is_comparable(side.estimate) else f"{_MARK} "
                where.setdefault(f"{mark}{what}: {text}", []).append(place)
    for reason, places in where.items():
        yield f"{some(dict.fromkeys(places), 4)}: {reason}."


def _notes(found: Sequence[Answer], base: str | None) -> Iterator[str]:
    estimates = [answer.cost.estimate for answer in found if isinstance(answer.cost.estimate, Estimate)]
    processes = {estimate.processes for estimate in estimates if estimate.low is not None}
    if processes == {1}:
        yield "Times of one process each: another may differ by more than its interval; more seeds would tell."
    yield f"95 % intervals. Level: as {base}, to within 5 % of the time or 0.01 of the gain."
