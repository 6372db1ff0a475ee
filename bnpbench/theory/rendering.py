"""The outcomes as a table, and below it what happens outside the hypotheses."""

from __future__ import annotations

from collections.abc import Sequence

from bnpbench.text import pipe_table
from bnpbench.theory.outcome import Outcome

HEADERS = ("statement", "claim", "tried", "nearest to breaking it", "tightest", "verdict")
OUTSIDE = "Outside the hypotheses, and how near the bounds are"
Rows = tuple[tuple[str, ...], ...]


def table_of(outcomes: Sequence[Outcome]) -> tuple[tuple[str, ...], Rows]:
    """Headings, and one row a statement."""
    return HEADERS, tuple(
        (o.statement, o.claim, str(o.tried), o.worst, "-" if o.tightest is None else f"{o.tightest:.3g}", o.verdict)
        for o in outcomes
    )


def render(outcomes: Sequence[Outcome]) -> str:
    """Markdown: one row a statement, then the notes."""
    headers, rows = table_of(outcomes)
    table = pipe_table(headers, [tuple(map(_cell, row)) for row in rows])
    notes = [f"### {o.statement}\n\n" + "\n".join(f"- {note}" for note in o.outside) for o in outcomes if o.outside]
    return "\n\n".join([table, f"## {OUTSIDE}", *notes] if notes else [table])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
