"""``bnpbench check``: validate suites and list their cells; run nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    suites: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE...]", help="Suite files, or names of shipped suites.")
    ] = None,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of a suite, for editors.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="List these cells only.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="The first so many seeds.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the suite's.")] = None,
    out: Annotated[Path, typer.Option(help="Earlier results, for the time estimate.")] = Path("results"),
    build: Annotated[
        bool, typer.Option("--build", help="Build every network with its method too; exit 3 if one cannot be.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets, for --build.")] = None,
    allow_plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Run the Python files that a suite names.")
    ] = False,
) -> int:
    """Validate suites and list their cells.

    The time is estimated from earlier results; nothing is run. What the options alone cannot tell, --build finds."""
    import json

    from bnpbench.errors import BnpbenchError
    from bnpbench.execution.listing import listing
    from bnpbench.suite import json_schema as schema
    from bnpbench.suite import load_suite

    if json_schema:
        print(json.dumps(schema(), indent=2))
        return 0
    if not suites:
        raise BnpbenchError("check: name a suite file or a shipped suite, or give --json-schema")
    code = 0
    for suite in suites:
        loaded = load_suite(suite, allow_plugins=allow_plugins)
        print(listing(loaded, out, only=tuple(only or ()), seeds=seeds, epochs=epochs))
        if build:
            from bnpbench.execution.building import build as build_cells

            built = build_cells(loaded, data_dir, only=tuple(only or ()), seeds=seeds)
            print(built.text)
            code = max(code, built.exit_code)
    return code
