"""The tables of a report, a file a section. ``SECTIONS`` is their order, and the one place that lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bnpbench.report.data import View, views
from bnpbench.report.document import Chapter, Section
from bnpbench.report.tables.accuracy import accuracy, time_to_accuracy
from bnpbench.report.tables.answer import cost_and_gain
from bnpbench.report.tables.claims import claims, references
from bnpbench.report.tables.compiling import compiling
from bnpbench.report.tables.conditioning import conditioning
from bnpbench.report.tables.costs import bounds, costs
from bnpbench.report.tables.growth import growth
from bnpbench.report.tables.reach import reach
from bnpbench.report.tables.refreshes import refreshes
from bnpbench.report.tables.selection import selection
from bnpbench.report.tables.summary import (
    damaged,
    deviations,
    heading,
    incomparable,
    ran,
    remarks,
    settings,
    strays,
    unfinished,
)
from bnpbench.report.tables.timing import timing
from bnpbench.results import Results

SECTIONS: tuple[Callable[[View], Section | None], ...] = (
    heading,
    cost_and_gain,
    claims,
    deviations,
    selection,
    timing,
    accuracy,
    time_to_accuracy,
    conditioning,
    reach,
    costs,
    refreshes,
    compiling,
    bounds,
    growth,
    references,
    unfinished,
    remarks,
    strays,
    ran,
    settings,
)  # each of one suite in one environment; None where it has nothing to say
TIMED = (timing, time_to_accuracy, refreshes, compiling, bounds, growth)  # of these those that show seconds


def chapters(results: Results) -> list[Chapter]:
    """The report as sections and tables, before it becomes text."""
    found = [Chapter(view.suite, view.id, tuple(_sections(view))) for view in views(results)]
    measured = {chapter.suite for chapter in found}
    for suite in sorted(set(results.suites) - measured):
        nothing = Section(suite, ("nothing of this suite has been measured; `bnpbench run` it",), level=1)
        found.append(Chapter(suite, "", (nothing,)))
    if (section := damaged(results.damaged)) is not None:
        found.append(Chapter("", "", (section,)))
    return found


def _marked(section: Callable[[View], Section | None], view: View) -> Section | None:
    """With a line on seconds that are not comparable where it shows any."""
    made = section(view)
    if made is None or section not in TIMED:
        return made
    return replace(made, lines=(*(f"{line[0].upper()}{line[1:]}." for line in incomparable(view)), *made.lines))


def _sections(view: View) -> list[Section]:
    made = (_marked(section, view) for section in SECTIONS)
    return [s for s in made if s is not None and (s.level == 1 or s.lines or s.tables)]
