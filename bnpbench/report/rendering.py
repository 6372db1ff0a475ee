"""A report: for each suite and environment what ran, what it shows, and what did not work."""

from __future__ import annotations

from bnpbench.errors import BnpbenchError
from bnpbench.report.accuracy import accuracy
from bnpbench.report.advice import advice
from bnpbench.report.bounds import bounds
from bnpbench.report.claims import Verdict, view_verdicts
from bnpbench.report.conditioning import conditioning
from bnpbench.report.costs import costs
from bnpbench.report.document import RENDERERS, Chapter, Record, Section, Table
from bnpbench.report.groups import layout
from bnpbench.report.growth import growth
from bnpbench.report.references import references
from bnpbench.report.selection import selection
from bnpbench.report.summary import damaged, deviations, overview, remarks, settings, strays, unfinished
from bnpbench.report.timing import time_to_accuracy, timing
from bnpbench.report.view import View, views
from bnpbench.results import Results
from bnpbench.text import dash, decimals, fixed, significant


def render(results: Results, format: str = "markdown") -> str:  # noqa: A002 - the name of the option
    """The whole report.

    Args:
        results: what was read.
        format: ``markdown``, ``csv`` or ``json``.

    Raises:
        BnpbenchError: no such format.
    """
    if format not in RENDERERS:
        raise BnpbenchError(f"no format is called {format!r}; there are {', '.join(RENDERERS)}")
    return RENDERERS[format](chapters(results))


def chapters(results: Results) -> list[Chapter]:
    """The report as sections and tables, before it becomes text."""
    found = [Chapter(view.suite, view.environment["id"], tuple(_sections(view))) for view in views(results)]
    measured = {chapter.suite for chapter in found}
    for suite in sorted(set(results.suites) - measured):
        nothing = Section(suite, ("nothing of this suite has been measured; `bnpbench run` it",), level=1)
        found.append(Chapter(suite, "", (nothing,)))
    if (section := damaged(results.damaged)) is not None:
        found.append(Chapter("", "", (section,)))
    return found


def _sections(view: View) -> list[Section]:
    arranged = layout(view.cells)
    groups = [group for group in arranged.groups if any(group.places())]
    sections = [
        overview(view),
        claims(view),
        deviations(view),
        selection(view),
        timing(view, groups),
        accuracy(view, groups),
        time_to_accuracy(view, groups),
        conditioning(view, groups),
        costs(view, groups),
        bounds(view, groups),
        growth(view, groups),
        references(view),
        unfinished(view, arranged.groups),
        remarks(view),
        strays(view),
        settings(view, arranged),
    ]
    return [
        section
        for section in sections
        if section is not None and (section.level == 1 or section.lines or section.tables)
    ]


def claims(view: View) -> Section | None:
    """The verdicts, each with its estimate, interval and n; None where the suite claims nothing."""
    found = view_verdicts(view)
    if not found:
        return None
    rows = tuple(_claim_row(verdict) for verdict in found)
    columns = ("verdict", "claim", "where", "what", "estimate", "95 % interval", "asked", "n", "remark")
    notes = tuple(filter(None, (advice(view, verdict) for verdict in found)))
    table = Table("", columns, rows, notes, tuple(_claim_record(verdict) for verdict in found))
    outcomes = [verdict.outcome for verdict in found]
    counts = ", ".join(
        f"{outcomes.count(outcome)} {outcome}"
        for outcome in ("holds", "fails", "undecided", "no data")
        if outcome in outcomes
    )
    return Section(f"Claims: {counts}", tables=(table,))


def asked(bounds: tuple[float, float]) -> str:
    """``at most 1``, ``at least 0.5``, ``-0.01 to 0.01``."""
    low, high = (f"{bound:.6g}" for bound in bounds)
    if bounds[0] == float("-inf"):
        return f"at most {high}"
    return f"at least {low}" if bounds[1] == float("inf") else f"{low} to {high}"


def _claim_row(verdict: Verdict) -> tuple[str, ...]:
    head = (verdict.outcome, verdict.says, verdict.where, verdict.question)
    if verdict.estimate is None:
        return (*head, dash(), dash("no data"), asked(verdict.bounds), dash(), verdict.reason)
    estimate = verdict.estimate
    if estimate.low is None or estimate.high is None:
        value, interval = significant(estimate.value), dash(estimate.reason)
    else:
        digits = decimals(max(abs(estimate.low), abs(estimate.high)))
        value, low, high = (fixed(number, digits) for number in (estimate.value, estimate.low, estimate.high))
        interval = f"[{low}, {high}]"
    n = f"{estimate.n} {verdict.unit if estimate.n != 1 else verdict.unit.removesuffix('s')}"
    remark = verdict.reason.removeprefix(estimate.reason).removeprefix("; ")  # the first part stands for the interval
    outcome = f"{verdict.outcome} (n = 1)" if estimate.n == 1 and verdict.outcome == "undecided" else verdict.outcome
    return (outcome, *head[1:], value, interval, asked(verdict.bounds), n, remark)


def _claim_record(verdict: Verdict) -> Record:
    estimate = verdict.estimate
    return Record(
        table="claims",
        group=verdict.where,
        method=verdict.says,
        quantity=f"{verdict.question}: {asked(verdict.bounds)}",
        value=None if estimate is None else estimate.value,
        low=None if estimate is None else estimate.low,
        high=None if estimate is None else estimate.high,
        n=None if estimate is None else estimate.n,
        text="; ".join(filter(None, (verdict.outcome, verdict.reason))),
    )
