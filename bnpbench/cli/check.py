"""``bnpbench check``: validate suites and list their cells; run nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnpbench.cli.output import AllowPlugins, Changes, Network, from_home, show, terminal
from bnpbench.display import waiting
from bnpbench.errors import BnpbenchError

if TYPE_CHECKING:
    from bnpbench.execution.listing import Built, Smoked


def check(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="Suite files, or names of suites that ship with bnpbench."),
    ] = None,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of a suite, for editors.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="List only the cells that have one of these values; repeat it to ask for more.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="List only the first N seeds.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Take N epochs instead of the suite's.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Earlier results, from which the time is estimated.", callback=from_home)
    ] = Path("results"),
    build: Annotated[
        bool,
        typer.Option("--build", help="Build every network with its method, too; exit with 3 if one cannot be built."),
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Take two steps of every distinct cell; exit with 1 if a loss is not finite."),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder that data sets lie in, for --build and --smoke; what is missing is generated for --smoke.",
            callback=from_home,
        ),
    ] = None,
    changes: Changes = None,
    network: Network = None,
    allow_plugins: AllowPlugins = False,
) -> int:
    """Validate suites and list their cells.

    The time is estimated from earlier results; nothing is run but, with --smoke, two eager steps of each distinct
    cell. What the options alone cannot tell of a network and its method, --build finds."""
    if not suites and not json_schema:
        raise BnpbenchError("check: name a suite file or a shipped suite, or give --json-schema")
    with waiting("check", f"reads {', '.join(suites or ())}", quiet=json_schema or not (build or smoke)) as shown:
        from bnpbench.execution.listing import build as built
        from bnpbench.execution.listing import listing, smoke_check
        from bnpbench.execution.options import Options
        from bnpbench.report.document import Chapter, Section, Table
        from bnpbench.report.render.terminal import to_terminal
        from bnpbench.suite import json_schema as schema
        from bnpbench.suite import load_suite

        if json_schema:
            print(json.dumps(schema(), indent=2))
            return 0
        loaded = [
            load_suite(suite, allow_plugins=allow_plugins, changes=changes or (), network=network, only=only or ())
            for suite in suites or ()
        ]
        asked = Options(only=tuple(only or ()), seeds=seeds, epochs=epochs)
        selections = [asked.selection(suite) for suite in loaded]
        screen = terminal()
        for selection in selections:
            listed = listing(selection, out, built=build)
            if screen is None:
                print(listed.text())
            else:
                table = Table("", listed.columns, listed.rows, listed.notes)
                print(to_terminal([Chapter("", "", (Section("", listed.head, (table,)),))], *screen))
        found: list[Built | Smoked] = []
        if build:
            found += [built(selection, data_dir, shown) for selection in selections]
        if smoke:
            found += [smoke_check(selection, data_dir, shown) for selection in selections]
    for one in found:
        show(f"\n{one.text()}")
    return max((one.exit_code for one in found), default=0)
