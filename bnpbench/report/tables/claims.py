"""What a suite holds its numbers against: its claims with their verdicts, and published figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bnpbench.records.documents import ReferenceRecord
from bnpbench.records.rows import metric as known
from bnpbench.report.data import Cell, View
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import At, Missing, comparable, default_at, describe_at, times, value, whole
from bnpbench.report.verdicts import Verdict, advice, view_verdicts
from bnpbench.statistics.times import processes_interval
from bnpbench.suite import told
from bnpbench.text import dash, decimals, fixed, significant


def claims(view: View) -> Section | None:
    """The verdicts, each with its estimate, interval and n; None where the suite claims nothing."""
    found = view_verdicts(view)
    if not found:
        return None
    rows = [_claim_row(verdict) for verdict in found]
    names = ("verdict", "claim", "where", "what", "estimate", "95 % interval", "asked", "n", "remark")
    used = [place for place, name in enumerate(names) if name not in ("where", "remark") or any(r[place] for r in rows)]
    columns, kept = tuple(names[place] for place in used), tuple(tuple(row[place] for place in used) for row in rows)
    notes = tuple(filter(None, (advice(view, verdict) for verdict in found)))
    return Section(f"Claims: {counted(found)}", tables=(Table("", columns, kept, notes),))


def counted(found: Sequence[Verdict]) -> str:
    """``4 of 4 hold``; ``3 of 6 hold, 1 fails, 2 without data``."""
    outcomes = [verdict.outcome for verdict in found]
    n, fails, undecided, missing = (outcomes.count(one) for one in ("holds", "fails", "undecided", "no data"))
    others = (
        (fails, "fails" if fails == 1 else "fail"),
        (undecided, "undecided"),
        (missing, "without data"),
    )
    held = f"{n} of {len(found)} {'holds' if n == 1 else 'hold'}"
    return ", ".join([held, *(f"{count} {word}" for count, word in others if count)])


def asked(bounds: tuple[float, float]) -> str:
    """``at most 1``, ``at least 0.5``, ``-0.01 to 0.01``."""
    low, high = (f"{bound:.6g}" for bound in bounds)
    if bounds[0] == float("-inf"):
        return f"at most {high}"
    return f"at least {low}" if bounds[1] == float("inf") else f"{low} to {high}"


def published(view: View, cells: Sequence[Cell], metric: str) -> str:
    """What the suite's references say of a metric of these cells, with its source; empty without one.

    The epochs that a reference is about stand there too, unless they are those of every figure of this metric.
    """
    keys = {cell.key for cell in cells if not cell.shortened or known(metric).timed}  # the end of others is another
    found = []
    for reference in view.document.references:
        if reference.metric == metric and keys & set(reference.cells):
            usual, at = default_at(metric), reference.at or default_at(metric)
            epochs = "" if at == usual else f"{describe_at(at)}; "
            found.append(f"{told(reference.value)} ({epochs}{reference.source})")
    return "; ".join(dict.fromkeys(found))


def references(view: View) -> Section | None:
    """Published figures that have no table of their own, a row each; None where the suite has none of this kind."""
    chosen = view.document.select.axes if view.document.select else ()
    others = [of for of in view.document.references if of.metric not in chosen and not known(str(of.metric)).tabled]
    rows = tuple(_reference_row(view, reference) for reference in others)
    columns = ("method", "N", "what", "ours", "published", "source")
    return Section("Published figures", tables=(Table("", columns, rows),)) if rows else None


def _claim_row(verdict: Verdict) -> tuple[str | Entry, ...]:
    head = (verdict.says, verdict.where, verdict.question)
    place, what = Place("claims", verdict.where, verdict.says), f"{verdict.question}: {asked(verdict.bounds)}"
    text = "; ".join(filter(None, (verdict.outcome, verdict.reason)))
    estimate = verdict.estimate
    if estimate is None:
        entry = place.entry(what, text=text, shown=dash())
        return (verdict.outcome, *head, entry, dash("no data"), asked(verdict.bounds), dash(), verdict.reason)
    if estimate.low is None or estimate.high is None:
        shown, interval = significant(estimate.value), dash(estimate.reason)
    else:
        digits = decimals(max(abs(estimate.low), abs(estimate.high)))
        shown, low, high = (fixed(number, digits) for number in (estimate.value, estimate.low, estimate.high))
        interval = f"[{low}, {high}]"
    entry = place.entry(what, estimate.value, estimate.low, estimate.high, estimate.n, text, shown=shown)
    n = f"{estimate.n} {verdict.unit if estimate.n != 1 else verdict.unit.removesuffix('s')}"
    remark = verdict.reason.removeprefix(estimate.reason).removeprefix("; ")  # the first part stands for the interval
    outcome = f"{verdict.outcome} (n = 1)" if estimate.n == 1 and verdict.outcome == "undecided" else verdict.outcome
    return (outcome, *head, entry, interval, asked(verdict.bounds), n, remark)


def _reference_row(view: View, reference: ReferenceRecord) -> tuple[str | Entry, ...]:
    cells = [view.by_key[key] for key in reference.cells if key in view.by_key]
    metric, target = str(reference.metric), reference.target
    at = reference.at or default_at(metric)
    found = [_numbers(view, cell, metric, at, target) for cell in cells]
    values = [numbers for numbers in found if not isinstance(numbers, Missing)]
    reasons = [numbers.reason for numbers in found if isinstance(numbers, Missing)]
    epochs = "" if at == "last" and not known(metric).timed else describe_at(at)
    what = " ".join(filter(None, (metric, "" if target is None else told(target), epochs)))
    methods = ", ".join(dict.fromkeys(cell.label for cell in cells)) or told(reference.cell)
    sizes = ", ".join(dict.fromkeys(str(cell.batch_size) for cell in cells))
    place = Place("published figures", "", methods)
    if values:
        ours = _ours(place, what, values, metric, cells)
    else:
        ours = place.empty(what, ", ".join(dict.fromkeys(reasons)) or "no cell")
    published, source = told(reference.value), str(reference.source)
    text = "; ".join(filter(None, (ours.text, f"published {published}, {source}")))
    return (methods, sizes, what, replace(ours, text=text), published, source)


def _numbers(view: View, cell: Cell, metric: str, at: At, target: float | None) -> list[float] | Missing:
    """Of a cell: its times at all the epochs, or the one number."""
    if known(metric).timed:
        series = times(view, cell, metric, at)
        series = whole(cell, series, metric, at)
        return series if isinstance(series, Missing) else list(series.values())
    found = whole(cell, value(view, cell, metric, at, target), metric, at)
    return found if isinstance(found, Missing) else [found]


def _ours(place: Place, what: str, values: Sequence[Sequence[float]], metric: str, cells: Sequence[Cell]) -> Entry:
    """Times by their median and interval over epochs, as of a claim; anything else by its mean over seeds."""
    every = [number for numbers in values for number in numbers]
    if known(metric).timed:
        return place.interval(what, comparable(processes_interval(values, "times"), cells, metric), every)
    center = sum(every) / len(every)
    return place.over_seeds(what, center, every, decimals(center))
