"""``bnpbench data``: which data sets are there, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home
from bnpbench.display import State, waiting

data = typer.Typer(help="List the data sets, or fetch one.", rich_markup_mode=None, invoke_without_command=True)
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets.", callback=from_home)]


@data.callback()
def listing(context: typer.Context, data_dir: DataDir = None) -> None:
    """List the data sets: what is there, where, and how to get the others."""
    if context.invoked_subcommand is None:
        from bnpbench.cli.output import write

        write(overview(data_dir), None)


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="Name of the data set.")],
    data_dir: DataDir = None,
) -> None:
    """Fetch a data set into the data folder."""
    with waiting("data", f"looks for {name}") as shown:
        from bnpbench.datasets import storage
        from bnpbench.registry import built_in

        root, begin = storage.root(data_dir), shown.now()
        with storage.told_to(lambda what, far: shown.show(State("data", what, counted=far, begin=begin))):
            built_in().dataset(name).fetch(root, replace=True)
    print(f"{name} is under {root}")


def overview(data_dir: Path | None) -> str:
    """A line for each data set: its name, whether it is there and whole, and where it comes from."""
    from bnpbench.datasets import storage
    from bnpbench.datasets.base import DatasetPlugin
    from bnpbench.registry import built_in

    root = storage.root(data_dir)
    lines = [f"data folder: {root} (--data-dir, BNPBENCH_DATA, or the user's cache folder)", ""]
    for name, dataset in built_in().kinds(DatasetPlugin).items():
        missing = dataset.missing(root)
        damaged = None if missing else dataset.damaged(root)
        state = "missing" if missing else "damaged" if damaged else "there"
        how = f"; fetch it with: bnpbench data get {name}" if missing and dataset.downloadable else ""
        lines.append(f"{name:14} {state:8} {dataset.whence()}{how}")
        lines += [f"{'':23} {damaged}"] if damaged else []
    return "\n".join(lines)
