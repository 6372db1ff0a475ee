"""A report as text. Pages and drawn figures are made by ``page`` and ``drawing``, which bring more with them."""

from __future__ import annotations

from bnpbench.report.render.text import rendered
from bnpbench.report.tables import chapters
from bnpbench.results import Results


def render(results: Results, format: str = "markdown") -> str:  # noqa: A002 - the name of the option
    """The whole report.

    Args:
        results: what was read.
        format: ``markdown``, ``csv`` or ``json``.

    Returns:
        The text, ending with a line's end.

    Raises:
        BnpbenchError: no such format.
    """
    return rendered(chapters(results), format)
