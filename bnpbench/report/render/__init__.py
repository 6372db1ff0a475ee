"""A report as text. Pages and drawn figures are made by ``page`` and ``drawing``, which bring more with them."""

from __future__ import annotations

from pathlib import Path

from bnpbench.report.render.text import rendered
from bnpbench.report.tables import chapters
from bnpbench.report.tables.ending import ending
from bnpbench.results import Results


def render_ending(
    results: Results,
    out: Path,
    environments: frozenset[str] | None = None,
    *,
    terminal: tuple[int, bool] | None = None,
) -> str:
    """What a run says when it ends, on one screen of 80 columns for a suite like ``quick``.

    Args:
        results: of the suites that were run.
        out: the folder that they were read from, as the user named it.
        environments: ids of those that were measured in; None: all.
        terminal: its columns, and whether it may be sent colours; None: markdown.
    """
    found = ending(results, out, environments)
    if terminal is None:
        return rendered(found, "markdown")
    from bnpbench.report.render.terminal import to_terminal

    width, colour = terminal
    return to_terminal(found, width, colour=colour)


def render(results: Results, format: str = "markdown") -> str:  # noqa: A002 - the name of the option
    """The whole report.

    Args:
        results: what was read.
        format: ``markdown``, ``csv``, ``json`` or ``latex``.

    Returns:
        The text, ending with a line's end.

    Raises:
        BnpbenchError: no such format.
    """
    return rendered(chapters(results), format)
