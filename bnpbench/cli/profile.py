"""``bnpbench profile``: where the time of a step goes."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home
from bnpbench.cli.report import Format
from bnpbench.display import waiting
from bnpbench.errors import BnpbenchError


class Tool(StrEnum):
    """What looks at the steps."""

    torch = "torch"
    py_spy = "py-spy"


def profile(
    suite: Annotated[str, typer.Argument(help="A suite file, or the name of a shipped suite.")],
    only: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="The cell to look at.")] = None,
    tool: Annotated[
        Tool, typer.Option("--with", help="torch: phases, operators, a trace. py-spy: flame graphs.")
    ] = Tool.torch,
    compare: Annotated[str | None, typer.Option(metavar="A,B", help="Methods to set side by side.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to look at, with torch.")] = 50,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.", callback=from_home)] = None,
    output: Annotated[Path, typer.Option(help="Folder for traces and flame graphs.", callback=from_home)] = Path(
        "profile"
    ),
    format: Annotated[Format, typer.Option(help="Of the tables, with torch.")] = Format.markdown,  # noqa: A002
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of every cell, whatever the suite says of it."),
    ] = None,
    allow_plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Run the Python files that a suite names.")
    ] = False,
) -> int:
    """Show where the time of a step goes.

    By phase and by operator, one method or several side by side."""
    untold: list[str] = []
    with waiting("profile", f"reads {suite}") as shown:
        from bnpbench.cli.output import make_folder
        from bnpbench.execution.options import device_index
        from bnpbench.profiling import inspection
        from bnpbench.report.render.text import RENDERERS
        from bnpbench.suite import load_suite

        if format.value not in RENDERERS:
            raise BnpbenchError(f"--format {format.value}: a profile comes as {', '.join(RENDERERS)}")
        loaded = load_suite(suite, allow_plugins=allow_plugins, changes=changes or ())
        methods = [method for method in (compare or "").split(",") if method]
        cells = inspection.choose(loaded, only or [], methods, device, shown)
        make_folder(output, "--output")
        gpu = device_index(device) or 0
        if tool is Tool.torch:
            chapter, files, untold = inspection.profile(loaded, cells, steps, data_dir, gpu, output, shown)
            print(RENDERERS[format.value]([chapter]))
            for lost in untold:
                shown.say(f"warning: {lost}")
        else:
            files = []
            for cell in cells:
                made, reason = inspection.sample(loaded, cell, data_dir, gpu, output, shown)
                files += made
                if reason:
                    shown.say(f"warning: {cell.label}: {reason}")
    for file in files:
        print(f"written: {file}", file=sys.stderr)
    return 4 if untold else 0
