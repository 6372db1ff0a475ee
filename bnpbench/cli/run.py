"""``bnpbench run``: run suites and print the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import AllowPlugins, Changes, Network, from_home, tell_unknown, terminal
from bnpbench.display import waiting
from bnpbench.errors import BnpbenchError

SOME_FAILED = 3


def run(
    suites: Annotated[
        list[str], typer.Argument(metavar="SUITE", help="Suite files, or names of suites that ship with bnpbench.")
    ],
    out: Annotated[Path, typer.Option(help="The folder that results are written to.", callback=from_home)] = Path(
        "results"
    ),
    device: Annotated[str, typer.Option(help="What to run on: auto, cpu, cuda or cuda:i.")] = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...", help="Run only the cells that have one of these values; repeat it to ask for more."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Run only the first N seeds.")] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Train for N epochs instead of the suite's; the report says so."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder that data sets lie in.", callback=from_home)] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Download no data.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure finished cells again.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="End a cell after that many seconds.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Run N blocks at once, each on its share of the cores; times are then not comparable.",
        ),
    ] = 1,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Run only every N-th block, from the I-th on.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT, auto or local.")
    ] = None,
    changes: Changes = None,
    network: Network = None,
    allow_plugins: AllowPlugins = False,
    fail_on_claims: Annotated[
        bool, typer.Option("--fail-on-claims", help="Exit with 1 if a claim fails here, with 4 if one has no data.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> int:
    """Run suites and print what each method costs and buys.

    What is finished is kept and not run again. `bnpbench report --all` shows all tables."""
    with waiting(", ".join(suites), "reads the suite", quiet=quiet) as shown:
        from bnpbench.execution.options import Options, check
        from bnpbench.execution.progress import Progress, Reporter
        from bnpbench.execution.run import execute
        from bnpbench.suite import load_suite

        loaded = [
            load_suite(suite, allow_plugins=allow_plugins, changes=changes or (), network=network, only=only or ())
            for suite in suites
        ]
        options = Options(
            out=out,
            device=device,
            only=tuple(only or ()),
            seeds=seeds,
            epochs=epochs,
            data_dir=data_dir,
            offline=offline,
            fresh=fresh,
            timeout=timeout,
            jobs=jobs,
            shard=_shard(shard),
            cluster=cluster,
        )
        selections = [check(suite, options) for suite in loaded]  # of all suites, before the first is run
        told = [Progress() if quiet else Reporter(shown, suite.name) for suite in loaded]
        ran = [execute(selection, options, one) for selection, one in zip(selections, told, strict=True)]

        from bnpbench.report import claims_exit_code, verdicts
        from bnpbench.report.render import render_ending
        from bnpbench.results import read_results

        results = read_results(out).of_suites([suite.name for suite in loaded])
        tell_unknown(results)
        environments = frozenset(one for outcome in ran for one in outcome.environments)
        print(render_ending(results, out, environments, terminal=terminal()), end="")
    if any(one.failed for one in ran):
        return SOME_FAILED
    if not fail_on_claims:
        return 0
    here = {suite.name: one.environments for suite, one in zip(loaded, ran, strict=True)}
    return claims_exit_code(one for one in verdicts(results) if one.environment in here[one.suite])


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    place, count = map(int, numbers.groups()) if numbers else (0, 0)
    if not 1 <= place <= count:
        raise BnpbenchError(f"--shard {text}: give I/N with I from 1 to N, such as 1/4")
    return place, count
