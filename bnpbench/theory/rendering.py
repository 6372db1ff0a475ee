"""The outcomes as a table, and below it what happens outside the hypotheses."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from bnpbench.theory.outcome import Outcome

HEADERS = ("statement", "claim", "tried", "nearest to breaking it", "tightest", "verdict")


def render(outcomes: Sequence[Outcome]) -> str:
    """Markdown: one row a statement, then the notes."""
    rows = [
        tuple(
            map(
                _cell,
                (o.statement, o.claim, o.tried, o.worst, "-" if o.tightest is None else f"{o.tightest:.3g}", o.verdict),
            )
        )
        for o in outcomes
    ]
    table = tabulate(rows, HEADERS, tablefmt="pipe", disable_numparse=True)
    notes = [f"### {o.statement}\n\n" + "\n".join(f"- {note}" for note in o.outside) for o in outcomes if o.outside]
    return "\n\n".join([table, "## Outside the hypotheses, and how near the bounds are", *notes] if notes else [table])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
