"""``bnpbench list``: what a suite may name, each with its options and their defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any

import typer

from bnpbench.errors import BnpbenchError


class What(StrEnum):
    """What can be listed."""

    methods = "methods"
    networks = "networks"
    datasets = "datasets"
    optimizers = "optimizers"
    schedules = "schedules"
    initializations = "initializations"
    losses = "losses"
    metrics = "metrics"
    columns = "columns"
    suites = "suites"


def listing(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(What)}.", show_default=False)] = "",
) -> None:
    """List what a suite may name.

    Each has a line: a kind with what it is and its options with their defaults, a metric or a column with its table
    and unit, a suite with what it measures."""
    there = [one.value for one in What]
    if what not in there:
        near = get_close_matches(what, there, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        fault = f"{what!r} is not one of" if what else "say which of"
        raise BnpbenchError(f"list: {fault} {', '.join(there)}{hint}")
    from bnpbench.cli.output import WIDE, terminal
    from bnpbench.report.document import Chapter, Section, Table
    from bnpbench.report.render.terminal import to_terminal

    columns, lines = {What.metrics: _metrics, What.columns: _columns, What.suites: _suites}.get(
        What(what), _kinds(What(what))
    )()
    table = Table("", columns, tuple(lines))
    width, colour = terminal() or (WIDE, False)
    print(to_terminal([Chapter("", "", (Section("", tables=(table,)),))], width, colour), end="")


Lines = tuple[tuple[str, ...], Iterator[tuple[str, ...]]]


def _kinds(what: What) -> Callable[[], Lines]:
    """Those of the registry."""

    def lines() -> Iterator[tuple[str, ...]]:
        from bnpbench.registry import BASES, built_in, nouns

        base = next(base for base in BASES if nouns(base) == what)
        for kind, cls in built_in().kinds(base).items():
            yield kind, _summary(cls), _options(cls)

    return lambda: (("kind", "what it is", "options"), lines())


def _metrics() -> Lines:
    from bnpbench.metrics.base import MetricPlugin
    from bnpbench.records.rows import METRICS
    from bnpbench.registry import built_in

    def lines() -> Iterator[tuple[str, ...]]:
        for name, metric in METRICS.items():
            yield name, f"{metric.table}", metric.unit, metric.better or ""
        for kind, cls in built_in().kinds(MetricPlugin).items():
            yield kind, f"epochs, as {cls.made().column}: a kind of metrics, {_options(cls)}", "", cls.better

    return ("metric", "of", "unit", "better"), lines()


def _columns() -> Lines:
    from bnpbench.records.rows import ROWS, columns

    return ("column", "table", "type", "unit"), (
        (name, table, column.type.__name__, column.metric.unit if column.metric else "")
        for table, row in ROWS.items()
        for name, column in columns(row).items()
    )


def _suites() -> Lines:
    from bnpbench.suite import load_suite, shipped_suites

    loaded = (load_suite(str(path)) for path in shipped_suites().values())
    return ("suite", "what it measures"), ((suite.name, suite.description) for suite in loaded)


def _options(cls: Any) -> str:
    """``momentum = 0, nesterov = false``; an option without a default stands alone, optional or not."""
    from bnpbench.fields import default_of
    from bnpbench.suite import told

    shown = []
    for name in (name for name in cls.model_fields if name not in ("kind", "label")):
        default = default_of(cls, name)
        without = name if cls.model_fields[name].is_required() else f"{name} (optional)"
        shown.append(without if default in (None, "") else f"{name} = {told(default)}")
    return ", ".join(shown)


def _summary(cls: type) -> str:
    """The first sentence of a class's docstring, without its marks of code."""
    text = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].replace("``", "").split())
    return re.split(r"(?<!\bal)\. ", text)[0].removesuffix(".")
