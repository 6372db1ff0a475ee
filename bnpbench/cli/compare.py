"""``bnpbench compare``: has anything become slower, dearer or less accurate."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import from_home, terminal
from bnpbench.errors import BnpbenchError

UNDECIDED = 4


class Format(StrEnum):
    """What a comparison can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    json = "json"


def compare(
    base: Annotated[Path, typer.Argument(help="A folder of results to compare with.", callback=from_home)],
    new: Annotated[Path, typer.Argument(help="A folder of new results.", callback=from_home)],
    more_base: Annotated[
        list[Path] | None,
        typer.Option(
            "--base",
            metavar="DIR",
            help="One more folder of the base, such as another shard; may be repeated.",
            callback=from_home,
        ),
    ] = None,
    more_new: Annotated[
        list[Path] | None,
        typer.Option(
            "--new",
            metavar="DIR",
            help="One more folder of new results, such as another shard; may be repeated.",
            callback=from_home,
        ),
    ] = None,
    slowdown: Annotated[
        str, typer.Option("--max-slowdown", metavar="SHARE", help="The slow-down that is a regression, such as 5%.")
    ] = "5%",
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Allow other hardware, and compare what does not depend on it.")
    ] = False,
    fail_on_undecided: Annotated[
        bool, typer.Option("--fail-on-undecided", help="Exit with 4 where a slow-down could have been overlooked.")
    ] = False,
    format: Annotated[  # noqa: A002
        Format | None,
        typer.Option(help="The form of the tables.", show_default="terminal on a terminal, else markdown"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file instead of stdout.", callback=from_home)
    ] = None,
) -> int:
    """Compare two runs.

    Cells are compared one by one. The exit code is 1 if something became worse."""
    from bnpbench.cli.output import tell_damaged, tell_unknown, write
    from bnpbench.report import compare as compare_results
    from bnpbench.report.render.terminal import to_terminal
    from bnpbench.results import read_results

    before, after = read_results(base, *(more_base or ())), read_results(new, *(more_new or ()))
    tell_unknown(before, after)
    tell_damaged(before, after)
    comparison = compare_results(before, after, max_slowdown=max_slowdown(slowdown), across_machines=across_machines)
    screen = terminal() if output is None else None
    if format is Format.terminal or (format is None and screen):
        write(to_terminal(comparison.chapters, *(screen or (80, False))), output)
    else:
        write(comparison.render((format or Format.markdown).value), output)
    if fail_on_undecided and comparison.exit_code == 0 and comparison.undecided:
        return UNDECIDED
    return comparison.exit_code


def max_slowdown(text: str) -> float:
    """The share that ``5%`` or ``0.05`` stands for. Raises BnpbenchError, also where ``5`` might be 5 % or 500 %."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    share = number / 100 if text.endswith("%") else number
    if not 0 < share < 10:
        raise BnpbenchError(f"--max-slowdown {text}: give a share above 0, such as 5% or 0.05")
    if share == number >= 1:
        raise BnpbenchError(
            f"--max-slowdown {text}: a plain number is a share, 0.05 for 5 %; write {text}% or {100 * share:g}%"
        )
    return share
