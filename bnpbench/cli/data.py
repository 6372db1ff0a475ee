"""``bnpbench data``: which data sets are there, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home

data = typer.Typer(help="List the data sets, or fetch one.", rich_markup_mode=None, invoke_without_command=True)
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets.", callback=from_home)]


@data.callback()
def listing(context: typer.Context, data_dir: DataDir = None) -> None:
    """List the data sets: what is there, where, and how to get the others."""
    if context.invoked_subcommand is None:
        from bnpbench.cli.output import write
        from bnpbench.execution.data import listing as text

        write(text(data_dir), None)


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="Name of the data set.")],
    data_dir: DataDir = None,
) -> None:
    """Fetch a data set into the data folder."""
    from bnpbench.execution import data

    print(data.get(name, data_dir))
