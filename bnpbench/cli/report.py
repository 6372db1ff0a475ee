"""``bnpbench report``: render results."""

from __future__ import annotations

import gc
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnpbench.cli.output import from_home

if TYPE_CHECKING:
    from bnpbench.results import Results


class Format(StrEnum):
    """What a report can be written as."""

    markdown = "markdown"
    csv = "csv"
    json = "json"
    html = "html"


def report(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR...]", help="Folders of results.", callback=from_home)
    ] = None,
    format: Annotated[Format, typer.Option(help="Of the report.")] = Format.markdown,  # noqa: A002
    output: Annotated[Path | None, typer.Option(help="File to write, instead of stdout.", callback=from_home)] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for figures, as SVG and PNG.", callback=from_home)
    ] = None,
    fail_on_claims: Annotated[
        bool, typer.Option("--fail-on-claims", help="Exit 1 if a claim fails, 4 if one has no data.")
    ] = False,
) -> int:
    """Print the tables of what was measured."""
    from bnpbench.cli.output import tell_unknown, write
    from bnpbench.report import claims_exit_code, render, verdicts
    from bnpbench.results import read_results

    places = folders or [Path("results")]
    gc.disable()  # a report makes a million small objects and no garbage
    results = read_results(*places)
    tell_unknown(results)
    if figures is not None:
        _draw(results, figures)
    if format is Format.html:
        from bnpbench.report.render.page import render_page

        text = render_page(results, places, output.parent if output else Path())
    else:
        text = render(results, format=format.value)
    write(text, output)
    return claims_exit_code(verdicts(results)) if fail_on_claims else 0


def _draw(results: Results, folder: Path) -> None:
    from bnpbench.report.render.drawing import write_figures

    written = write_figures(results, folder)
    drawn = f"{len(written)} files of figures in {folder}" if written else "no figures: nothing in here can be drawn"
    print(drawn, file=sys.stderr)
