"""All figures of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bnpbench.report.figures.conditioning import conditioning
from bnpbench.report.figures.cost import cost
from bnpbench.report.figures.forest import forest
from bnpbench.report.figures.model import Figure
from bnpbench.report.figures.seeds import slug
from bnpbench.report.figures.timing import cumulative_time, step_time
from bnpbench.report.figures.training import training
from bnpbench.report.groups import layout
from bnpbench.report.view import View

_MOST_PANELS = 6  # of a figure: more are not legible at half a page


def figures(views: Sequence[View]) -> list[Figure]:
    """The figures of these views, each with a name of its own; none has an empty panel."""
    suites = Counter(view.suite for view in views)
    found: dict[str, list[Figure]] = {}
    for view in views:
        place = slug(view.suite) + (f"-{slug(view.environment['id'])}" if suites[view.suite] > 1 else "")
        for figure in _of_view(view):
            for part in _split(figure):
                found.setdefault(f"{place}-{part.name}", []).append(part)
    return [
        replace(figure, name=f"{name}-{place}" if len(same) > 1 else name)
        for name, same in found.items()
        for place, figure in enumerate(same, 1)
    ]


def _of_view(view: View) -> Iterable[Figure]:
    for group in layout(view.cells).groups:
        for build in (training, conditioning, cumulative_time, step_time, cost):
            for figure in build(view, group):
                yield replace(figure, title=f"{figure.title}: {group.title}") if group.title else figure
    yield from forest(view)


def _split(figure: Figure) -> Iterable[Figure]:
    for start in range(0, len(figure.panels), _MOST_PANELS):
        yield replace(figure, panels=figure.panels[start : start + _MOST_PANELS])
