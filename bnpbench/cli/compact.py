"""``bnpbench compact``: merge the parts of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compact(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of results.")] = Path("results"),
) -> int:
    """Merge parts, losslessly.

    One file a table instead of one a cell: faster to read and to copy. Later runs add parts beside it."""
    from bnpbench.results import compact as merge

    for folder, cells in merge(directory).items():
        print(f"{folder}: {cells} cell{'' if cells == 1 else 's'} in one file a table")
    return 0
