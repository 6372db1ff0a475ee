"""``bnpbench report``: render results."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnpbench.cli.output import from_home, terminal
from bnpbench.display import waiting
from bnpbench.streams import tell
from bnpbench.text import number_of

if TYPE_CHECKING:
    from bnpbench.results import Results


LARGE = 300  # cells in a file each
LARGE_BYTES = 2**20  # of merged ones
LEVELS = ("", "*/", "*/*/")  # of an environment's folder, of a suite's, of all results


class Format(StrEnum):
    """What a report can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    json = "json"
    latex = "latex"
    html = "html"


def report(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", help="Folders of results; results, where none is named.", callback=from_home),
    ] = None,
    format: Annotated[  # noqa: A002
        Format | None,
        typer.Option(help="The form of the report.", show_default="terminal on a terminal, else markdown"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file instead of stdout.", callback=from_home)
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Draw figures into this folder, as SVG, PDF and PNG with captions.", callback=from_home
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show all there is: on a terminal every table, not only the answer; also figures of times that are "
            "not comparable.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Show only the cells that have one of these values; repeat it to ask for more.",
        ),
    ] = None,
    suite: Annotated[list[str] | None, typer.Option(help="Show only this suite; may be repeated.")] = None,
    fail_on_claims: Annotated[
        bool,
        typer.Option(
            "--fail-on-claims", help="Exit with 1 if a claim fails, with 4 if one has no data, whatever --only shows."
        ),
    ] = False,
) -> int:
    """Print the tables of what was measured."""
    places = folders or [Path("results")]
    with waiting("report", f"reads {', '.join(map(str, places))}", quiet=not (sys.stderr.isatty() or _large(places))):
        return _report(places, format, output, figures, all_, only or (), suite or (), fail_on_claims)


def _report(
    places: list[Path],
    format: Format | None,  # noqa: A002
    output: Path | None,
    figures: Path | None,
    all_: bool,
    only: Sequence[str],
    suite: Sequence[str],
    fail_on_claims: bool,
) -> int:
    from bnpbench.cli.output import tell_unknown, write
    from bnpbench.report import claims_exit_code, render, verdicts
    from bnpbench.report.data import narrowed
    from bnpbench.report.render import render_ending
    from bnpbench.report.render.terminal import to_terminal
    from bnpbench.report.tables import chapters
    from bnpbench.results import read_results

    gc.disable()  # a report makes a million small objects and no garbage
    results = read_results(*places)
    tell_unknown(results)
    asked = narrowed(results, suite)
    results = narrowed(asked, only=only)
    if figures is not None:
        _draw(results, figures, every=all_)
    screen = terminal() if output is None else None
    if format is None:
        format = Format.terminal if screen else Format.markdown  # noqa: A001
    if format is Format.html:
        from bnpbench.report.render.page import render_page

        text = render_page(results, places, output.parent if output else Path(), every=all_)
    elif format is Format.terminal and not all_:
        text = render_ending(results, places[0], terminal=screen or (80, False))
    elif format is Format.terminal:
        text = to_terminal(chapters(results), *(screen or (80, False)))
    else:
        text = render(results, format=format.value)
    write(text, output)
    return claims_exit_code(verdicts(asked)) if fail_on_claims else 0  # as a run with --only, which knows all claims


def _large(places: Iterable[Path]) -> bool:
    """Whether there is so much to read that a person wonders; it takes a moment to find out."""
    merged = (path for place in places for level in LEVELS for path in place.glob(f"{level}*.parquet"))
    if sum(path.stat().st_size for path in merged if path.is_file()) > LARGE_BYTES:
        return True
    parts = (path for place in places for level in LEVELS for path in place.glob(f"{level}cells/*.parquet"))
    return sum(1 for _ in islice(parts, LARGE)) == LARGE


def _draw(results: Results, folder: Path, *, every: bool) -> None:
    from bnpbench.report.data import views
    from bnpbench.report.render.drawing import write_figures
    from bnpbench.report.tables.summary import incomparable

    written = write_figures(results, folder, every=every)
    if not every and (why := [f"{view.suite}: {line}" for view in views(results) for line in incomparable(view)]):
        tell(f"no figures of these times, which --all draws: {'; '.join(why)}")
    drawn = (
        f"{number_of(len(written), 'file')} of figures in {folder}"
        if written
        else "no figures: nothing in here can be drawn"
    )
    tell(drawn)
