"""Claims as a forest plot: estimate, interval and what was asked, on one axis for each quantity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bnpbench.report.data import View
from bnpbench.report.figures.curves import about
from bnpbench.report.figures.model import LARGEST, Axis, Figure, ForestPanel, Row
from bnpbench.report.query import is_comparable
from bnpbench.report.verdicts import Verdict, view_verdicts
from bnpbench.text import decimals, fixed, significant

_LOG_FROM = 30.0  # largest over smallest number on an axis
_MOST_ROWS = 12  # of a figure
_DIGITS = 3


def forest(view: View) -> Iterable[Figure]:
    """The claims that have an estimate, at most twelve a figure; the others are named in a note."""
    verdicts = view_verdicts(view)
    quantities: dict[str, list[Row]] = {}
    for verdict in verdicts:
        if verdict.estimate is not None and not math.isnan(verdict.estimate.value) and is_comparable(verdict.estimate):
            quantities.setdefault(verdict.question.partition(", ")[0], []).append(_row(verdict))
    parts: list[list[ForestPanel]] = []
    room = 0
    for quantity, rows in quantities.items():
        log = _is_log(quantity, rows)
        while rows:
            if not room:
                parts.append([])
                room = _MOST_ROWS
            axis = Axis(quantity.replace("_", " "), log=log, limits=_limits(quantity, rows[:room], log=log))
            parts[-1].append(ForestPanel(axis, tuple(rows[:room])))
            rows, room = rows[room:], max(0, room - len(rows))
    silent = [verdict for verdict in verdicts if verdict.estimate is None or not is_comparable(verdict.estimate)]
    for panels in parts:
        last = panels is parts[-1]
        notes = [
            "Estimate, 95 % interval and, shaded, what the claim asks for. Filled: holds; cross: fails; open:"
            " undecided.",
            *(_without(silent) if last else []),
            *about(view),
        ]
        title = "Claims and verdicts"
        yield Figure("claims", view.suite, view.id, "claims", title, tuple(panels), tuple(notes))


def _row(verdict: Verdict) -> Row:
    estimate = verdict.estimate
    assert estimate is not None
    detail = "; ".join(filter(None, (verdict.where, verdict.question.partition(", ")[2])))
    if estimate.low is None or estimate.high is None:
        value, interval = significant(estimate.value, _DIGITS), estimate.reason
    else:
        digits = decimals(max(abs(estimate.low), abs(estimate.high)), _DIGITS)
        value, *ends = (fixed(number, digits) for number in (estimate.value, estimate.low, estimate.high))
        interval = f"[{', '.join(ends)}]"
    low, high = (None if end is None else _drawn(end) for end in (estimate.low, estimate.high))
    bounds = _drawn(verdict.bounds[0]), _drawn(verdict.bounds[1])
    return Row(verdict.says, detail, verdict.outcome, _drawn(estimate.value), low, high, bounds, value, interval)


def _drawn(number: float) -> float:
    """A number so large that no axis shows it beside others is drawn as infinite."""
    return number if abs(number) < LARGEST else math.copysign(math.inf, number)


def _is_log(quantity: str, rows: Iterable[Row]) -> bool:
    numbers = [number for row in rows for number in (row.value, *row.bounds)]
    known = [number for number in numbers if math.isfinite(number)]
    if not known or min(known) < 1 / LARGEST:
        return False
    return quantity.startswith("ratio") or max(known) > _LOG_FROM * min(known)


def _limits(quantity: str, rows: Sequence[Row], *, log: bool) -> tuple[float, float]:
    """Room for all that is finite, and for a bound to have two sides."""
    numbers = [number for row in rows for number in (row.value, row.low, row.high, *row.bounds) if number is not None]
    known = [number for number in numbers if math.isfinite(number)] or [0.0, 1.0]
    if log:
        known = [math.log(number) for number in known if number > 0]  # an interval may reach below: cut at the edge
        pad = 0.12 * (max(known) - min(known)) or 0.1
        return math.exp(min(known) - pad), math.exp(max(known) + pad)
    low, high = min(known), max(known)
    if quantity.startswith("reached"):  # a share of seeds
        return min(low, 0.0) - 0.05, max(high, 1.0) + 0.05
    pad = 0.12 * (high - low) or 0.12 * abs(high) or 0.1
    return low - pad, high + pad


def _without(silent: list[Verdict]) -> list[str]:
    if not silent:
        return []
    named = [f"{v.says} ({'; '.join(filter(None, (v.where, v.reason)))})" for v in silent[:3]]
    more = f"; and {len(silent) - 3} more" if len(silent) > 3 else ""
    return [f"Not drawn: {'; '.join(named)}{more}."]
