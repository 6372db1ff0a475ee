"""``bnpbench compact``: merge the parts of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home, show
from bnpbench.display import Count, waiting
from bnpbench.text import number_of


def compact(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder of results.", callback=from_home)] = Path(
        "results"
    ),
) -> int:
    """Merge the parts of results into one file a table.

    Nothing is lost, and it is faster to read and to copy than a file a cell. Later runs add parts beside it."""
    with waiting("compact", f"reads {directory}") as shown:
        from bnpbench.errors import NothingToCompare, ResultsError
        from bnpbench.results import compact as merge

        try:
            merged = merge(directory, Count(shown, "compact", "parts"))
        except OSError as error:
            raise ResultsError(f"{error.filename or directory}: cannot be read ({error.strerror or error})") from error
    if not merged:
        raise NothingToCompare(f"{directory}: no results in here; write some with `bnpbench run SUITE --out FOLDER`")
    for folder, cells in merged.items():
        show(f"{folder}: {number_of(cells, 'cell')} in one file a table")
    return 0
