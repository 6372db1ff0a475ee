"""The Typer app and the options that every command has."""

from __future__ import annotations

from typing import Annotated

import typer

from bnpbench.cli.check import check
from bnpbench.cli.compact import compact
from bnpbench.cli.compare import compare
from bnpbench.cli.data import data
from bnpbench.cli.env import env
from bnpbench.cli.listing import listing
from bnpbench.cli.new import new
from bnpbench.cli.profile import profile
from bnpbench.cli.report import report
from bnpbench.cli.run import run
from bnpbench.cli.verify import verify

EXAMPLES = """Examples:

  bnpbench run quick             four methods, on data that need no download

  bnpbench report --all          every table of what was measured

  bnpbench compare OLD NEW       is anything slower or less accurate?
"""

app = typer.Typer(
    name="bnpbench",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, report, compare, verify, profile, check, new, env, compact):
    app.command()(command)
app.command(name="list")(listing)
app.add_typer(data, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from bnpbench.version import __version__

        typer.echo(f"bnpbench {__version__ or 'that is not installed'}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """What a normalization method costs and what it buys: run suites, read tables you can trust."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
