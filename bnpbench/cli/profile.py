"""``bnpbench profile``: where the time of a step goes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import AllowPlugins, Changes, from_home, terminal
from bnpbench.display import waiting
from bnpbench.streams import tell


class Format(StrEnum):
    """What a profile can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    json = "json"
    latex = "latex"


class Tool(StrEnum):
    """What looks at the steps."""

    torch = "torch"
    py_spy = "py-spy"


def profile(
    suite: Annotated[str, typer.Argument(help="A suite file, or the name of a suite that ships with bnpbench.")],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...", help="Look at the cell that has one of these values; repeat it to ask for more."
        ),
    ] = None,
    tool: Annotated[
        Tool,
        typer.Option(
            "--with", help="Look with torch, for phases, operators and a trace, or with py-spy, for flame graphs."
        ),
    ] = Tool.torch,
    compare: Annotated[str | None, typer.Option(metavar="A,B", help="Set these methods side by side.")] = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Look at N steps, with torch.")] = 50,
    device: Annotated[str, typer.Option(help="What to run on: auto, cpu, cuda or cuda:i.")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="The folder that data sets lie in.", callback=from_home)] = None,
    output: Annotated[
        Path, typer.Option(help="The folder that traces and flame graphs are written to.", callback=from_home)
    ] = Path("profile"),
    format: Annotated[  # noqa: A002
        Format | None,
        typer.Option(help="The form of the tables, with torch.", show_default="terminal on a terminal, else markdown"),
    ] = None,
    changes: Changes = None,
    allow_plugins: AllowPlugins = False,
) -> int:
    """Show where the time of a step goes.

    It is told by phase and by operator, of one method or of several side by side."""
    untold: list[str] = []
    with waiting("profile", f"reads {suite}") as shown:
        from bnpbench.cli.output import make_folder
        from bnpbench.execution.options import device_index
        from bnpbench.profiling import inspection
        from bnpbench.report.render.terminal import to_terminal
        from bnpbench.report.render.text import RENDERERS
        from bnpbench.suite import load_suite

        loaded = load_suite(suite, allow_plugins=allow_plugins, changes=changes or (), only=only or ())
        methods = [method for method in (compare or "").split(",") if method]
        cells = inspection.choose(loaded, only or [], methods, device, shown)
        make_folder(output, "--output")
        gpu = device_index(device) or 0
        if tool is Tool.torch:
            chapter, files, untold = inspection.profile(loaded, cells, steps, data_dir, gpu, output, shown)
            screen = terminal()
            if format is Format.terminal or (format is None and screen):
                print(to_terminal([chapter], *(screen or (80, False))))
            else:
                print(RENDERERS[(format or Format.markdown).value]([chapter]))
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
        tell(f"written: {file}")
    return 4 if untold else 0
