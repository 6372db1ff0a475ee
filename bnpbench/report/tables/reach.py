"""What a method and an optimizer reach: a network's sites, the layers that BNP preconditions, parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bnpbench.report.data import Cell, Group, View
from bnpbench.report.document import Section
from bnpbench.text import number_of

_PART = re.compile(r"(?P<name>.+): (?P<count>[0-9]{1,18}), weight decay (?P<decay>.+)")


def reach(view: View) -> Section | None:
    """A line for each network and method; None where all are built with their method and have one optimizer."""
    lines = tuple(dict.fromkeys(line for group in view.groups for line in (*_lines(group), *_optimizers(group))))
    return Section("What the methods reach", lines) if lines else None


def _optimizers(group: Group) -> Iterator[str]:
    """What share of the parameters each of several optimizers serves."""
    for cell in group.cells:
        parts = [part for line in cell.text("optimizer_parts").splitlines() if (part := _PART.fullmatch(line))]
        total = sum(int(part["count"]) for part in parts)
        if len(parts) > 1 and total:
            first, *others = (f"{part['name']} {int(part['count']) / total:.0%}" for part in parts[:-1])
            told = ", ".join([f"{first} of parameters", *others, f"{parts[-1]['name']} the rest"])
            yield f"{f'{group.title}: ' if group.title else ''}{told}; weight decay is {parts[0]['decay']}"


def _lines(group: Group) -> Iterator[str]:
    for method, _, cells in group.places():
        for cell in cells[:1]:
            head = f"{group.title}: {method}" if group.title else method
            if (served := cell.count("sites_served")) is not None:
                yield f"{head}: {served} of {number_of(len(cell.text('sites').splitlines()), 'site')}"
                if cell.count("bnp_layers") is not None:
                    yield f"{head} {conditioned(cell)}"


def conditioned(cell: Cell) -> str:
    """What a method preconditions of a network, and what it leaves alone."""
    layers, left = cell.count("bnp_layers") or 0, cell.text("bnp_skipped").splitlines()
    share = (cell.count("bnp_parameters") or 0) / (cell.count("parameters") or 1)
    told = f"conditions {layers} of {number_of(layers + len(left), 'layer')}, {share:.0%} of parameters"
    return told + (f"; not {'; '.join(left)}" if left else "")
