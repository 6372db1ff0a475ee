"""``bnpbench data``: which data sets are there, and how to get the others."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import WIDE, from_home, show, terminal, write
from bnpbench.display import State, waiting

data = typer.Typer(help="List the data sets, or fetch one.", rich_markup_mode=None, invoke_without_command=True)
DataDir = Annotated[Path | None, typer.Option(help="The folder that data sets lie in.", callback=from_home)]


@data.callback()
def listing(context: typer.Context, data_dir: DataDir = None) -> None:
    """List the data sets: what is there, where, and how to get the others."""
    if context.invoked_subcommand is None:
        write(overview(data_dir, (terminal() or (WIDE, False))[0]), None)


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="The name of a data set.")],
    data_dir: DataDir = None,
) -> None:
    """Fetch a data set into the data folder."""
    with waiting("data", f"looks for {name}") as shown:
        from bnpbench.datasets import storage
        from bnpbench.registry import built_in

        root, begin, dataset = storage.root(data_dir), shown.now(), built_in().dataset(name)
        with storage.told_to(lambda what, far: shown.show(State("data", what, counted=far, begin=begin))):
            dataset.fetch(root, replace=True)
    show(
        {
            "made": f"{name} needs no files: {dataset.whence()}",
            "data folder": f"{name} is under {root}",
            "path": f"{name} lies where a suite says, and nothing is to be fetched: {dataset.whence()}",
        }[dataset.source]
    )


def overview(data_dir: Path | None, width: int = WIDE) -> str:
    """A line for each data set: its name, whether it is there and whole, and where it comes from.

    Args:
        data_dir: folder of the data sets, as the user named it.
        width: of the terminal, in columns.
    """
    from bnpbench.datasets import storage
    from bnpbench.datasets.base import DatasetPlugin
    from bnpbench.registry import built_in
    from bnpbench.report.document import Chapter, Section, Table
    from bnpbench.report.render.terminal import to_terminal

    root = storage.root(data_dir)
    where = f"data folder: {root} (--data-dir, BNPBENCH_DATA, or the user's cache folder)"
    option = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    rows = []
    for name, dataset in built_in().kinds(DatasetPlugin).items():
        state, remark = "by path" if dataset.source == "path" else "there", ""
        if dataset.missing(root):
            state = "missing"
            remark = f"; fetch it with: bnpbench data get {name}{option}" if dataset.downloadable else ""
        elif damaged := dataset.damaged(root):
            state, remark = "damaged", f"; {damaged}"
        rows.append((name, state, f"{dataset.whence()}{remark}"))
    table = Table("", ("data set", "where", "what it is"), tuple(rows))
    return to_terminal([Chapter("", "", (Section("", (where,), (table,)),))], width).rstrip()
