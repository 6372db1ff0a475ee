"""``bnpbench verify``: try the paper's statements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home
from bnpbench.display import Count, waiting


def verify(
    statements: Annotated[
        list[str] | None, typer.Argument(metavar="[STATEMENT...]", help="Such as theorem-4 proposition-6; all if none.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Try them on this data set's activations too.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.", callback=from_home)] = None,
    trials: Annotated[int, typer.Option(min=1, help="Random instances a statement is tried on.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
) -> int:
    """Try the paper's numbered statements; exit 1 if one fails inside its hypotheses."""
    with waiting("verify", "imports") as shown:
        from bnpbench.theory import render
        from bnpbench.theory import verify as try_statements

        told = Count(shown, "verify", "statements")
        outcomes = try_statements(statements or None, data=data, data_dir=data_dir, trials=trials, seed=seed, told=told)
    print(render(outcomes))
    return int(any(outcome.verdict == "violated" for outcome in outcomes))
