"""``bnpbench env``: what would be recorded about this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnpbench.cli.output import show
from bnpbench.display import waiting
from bnpbench.errors import BnpbenchError
from bnpbench.text import number_of

if TYPE_CHECKING:
    from bnpbench.records.documents import Rates


def env(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure its peak rates, which may take half a minute; later runs record them."),
    ] = False,
) -> int:
    """Print what would be recorded about this machine.

    Its peak rates are among that once they were measured."""
    with waiting("env", "measures the peak rates of this machine, half a minute", quiet=not measure):
        from bnpbench.measure import known, rates
        from bnpbench.measure.environment import describe

        environment = describe()
        found = rates.measure() if measure else None
    if found is not None:
        environment = environment.model_copy(update={"rates": found})
        try:
            known.keep(environment.id, found)
        except OSError as error:
            raise BnpbenchError(f"the rates cannot be kept in the cache folder: {error}") from error
    lines = [*_lines(environment.model_dump(exclude={"rates"}, exclude_unset=True)), *_rates(environment.rates)]
    lines += [f"hint: {hint}" for hint in (environment.details.gpu.hints() if environment.details.gpu else ())]
    show("\n".join(lines))
    return 0


def _lines(table: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in table.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {'-' if value is None else value}")
    return lines


def _rates(found: Rates | None) -> list[str]:
    if found is None:
        return ["rates: not measured; `bnpbench env --measure` does, and later runs record them"]
    lines = [f"rates, measured {found.measured}:", *(f"  by {name}" for name in found.libraries)]
    for rate in filter(None, found.rates):
        threads = "" if rate.threads is None else f", {number_of(rate.threads, 'thread')}"
        middle, low, high = rate.shown
        spread = f"({low} to {high}, {rate.repetitions} times)"
        kernel = f" by {rate.kernel}" if rate.kernel else ""
        lines.append(f"  {rate.device}{threads}: {rate.quantity} {middle}{kernel} {spread}")
    return lines
