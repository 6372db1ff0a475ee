"""What of a network of others a method reaches: its sites, and the layers that BNP preconditions."""

from __future__ import annotations

from collections.abc import Iterator

from bnpbench.report.data import Cell, Group, View
from bnpbench.report.document import Section
from bnpbench.text import number_of


def reach(view: View) -> Section | None:
    """A line for each network and method; None where all networks are built with their method."""
    lines = tuple(dict.fromkeys(line for group in view.groups for line in _lines(group)))
    return Section("What the methods reach", lines) if lines else None


def _lines(group: Group) -> Iterator[str]:
    for method, _, cells in group.places():
        for cell in cells[:1]:
            head = f"{group.title}: {method}" if group.title else method
            if (served := cell.count("sites_served")) is not None:
                yield f"{head}: {served} of {number_of(len(cell.text('sites').splitlines()), 'site')}"
                if cell.count("bnp_layers") is not None:
                    yield f"{head}: {conditioned(cell)}"


def conditioned(cell: Cell) -> str:
    """What BNP preconditions of a network, and what it leaves alone."""
    layers, left = cell.count("bnp_layers") or 0, cell.text("bnp_skipped").splitlines()
    share = (cell.count("bnp_parameters") or 0) / (cell.count("parameters") or 1)
    told = f"BNP conditions {layers} of {number_of(layers + len(left), 'layer')}, {share:.0%} of parameters"
    return told + (f"; not {'; '.join(left)}" if left else "")
