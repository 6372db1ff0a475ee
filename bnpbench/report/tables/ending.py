"""What a run says when it ends: the answer, the claims, what failed and where the rest lies, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bnpbench.report.data import Cell, View, views
from bnpbench.report.document import Chapter, Section
from bnpbench.report.tables.answer import cost_and_gain
from bnpbench.report.tables.claims import counted
from bnpbench.report.tables.summary import deviations, heading
from bnpbench.report.verdicts import view_verdicts
from bnpbench.results import FINISHED, Results
from bnpbench.text import number_of, some

ROWS = 12  # of the answer; the report has all
_FAILURES, _DEVIATIONS = 2, 2


def ending(results: Results, out: Path, environments: frozenset[str] | None = None) -> list[Chapter]:
    """A chapter a suite and environment.

    Args:
        results: of the suites that were run.
        out: the folder that they were read from, as the user named it.
        environments: ids of those that were measured in; None: all.
    """
    seen = [view for view in views(results) if environments is None or view.id in environments]
    return [Chapter(view.suite, view.id, tuple(_sections(view, out))) for view in seen]


def _sections(view: View, out: Path) -> Iterator[Section]:
    yield heading(view)
    answer = cost_and_gain(view)
    rows = [row for table in answer.tables for row in table.rows] if answer else []
    if answer is not None:
        yield replace(answer, tables=tuple(replace(table, rows=table.rows[:ROWS]) for table in answer.tables))
    lines = [f"{number_of(len(rows) - ROWS, 'more row')}: see the report."] if len(rows) > ROWS else []
    lines += [*_claims(view), *_failures(view, out), *_deviations(view)]
    lines.append(f"Results: {_folder(view, out)}. Everything: bnpbench report {out} --all")
    yield Section("", tuple(lines))


def _claims(view: View) -> Iterator[str]:
    found = view_verdicts(view)
    if found:
        yield f"Claims: {counted(found)}."
    for verdict in [verdict for verdict in found if verdict.outcome == "fails"][:2]:
        yield f"Fails: {verdict.says}{f' ({verdict.where})' if verdict.where else ''}."


def _failures(view: View, out: Path) -> Iterator[str]:
    """What did not end as it should, with the reason and the log."""
    alike: dict[tuple[str, str], list[Cell]] = {}
    for cell in view.cells:
        if cell.row and cell.status not in FINISHED:
            alike.setdefault((cell.status, cell.text("message")), []).append(cell)
    for (status, message), cells in list(alike.items())[:_FAILURES]:
        whose = some(dict.fromkeys(f"{cell.label} at N = {cell.batch_size}" for cell in cells), 3)
        log = cells[0].text("log")
        place = f" (log: {_folder(view, out) / view.id / log})" if log else ""
        yield f"Failed: {whose}: {': '.join(filter(None, (status, message)))}{place}."
    if len(alike) > _FAILURES:
        yield f"Failed for {number_of(len(alike) - _FAILURES, 'more reason')}: see the report."


def _folder(view: View, out: Path) -> Path:
    """The suite's folder, in that of all results or named itself."""
    inside = out / view.suite
    return inside if inside.is_dir() else out


def _deviations(view: View) -> Sequence[str]:
    section = deviations(view)
    return [f"{line[0].upper()}{line[1:]}." for line in section.lines[:_DEVIATIONS]] if section else []
