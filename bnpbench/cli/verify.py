"""``bnpbench verify``: try the paper's statements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home, terminal
from bnpbench.display import Count, waiting


def verify(
    statements: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STATEMENT", help="Statements such as theorem-4 or proposition-6; all, where none is named."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Try them on activations of this data set, too.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder that data sets lie in.", callback=from_home)] = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Try each statement on N random instances.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")] = 0,
) -> int:
    """Try the paper's numbered statements.

    The exit code is 1 if one fails within its hypotheses."""
    with waiting("verify", "imports") as shown:
        from bnpbench.report.document import Chapter, Section, Table
        from bnpbench.report.render.terminal import to_terminal
        from bnpbench.theory import OUTSIDE, render, table_of
        from bnpbench.theory import verify as try_statements

        told = Count(shown, "verify", "statements")
        outcomes = try_statements(statements or None, data=data, data_dir=data_dir, trials=trials, seed=seed, told=told)
    if (screen := terminal()) is None:
        print(render(outcomes))
    else:
        apart = [Section(o.statement, o.outside) for o in outcomes if o.outside]
        sections = [
            Section("", tables=(Table("", *table_of(outcomes)),)),
            *([Section(OUTSIDE), *apart] if apart else []),
        ]
        print(to_terminal([Chapter("", "", tuple(sections))], *screen))
    return int(any(outcome.verdict == "violated" for outcome in outcomes))
