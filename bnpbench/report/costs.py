"""FLOPs and operators of a step: the model's, and the method's as predicted, counted and executed."""

from __future__ import annotations

from collections.abc import Sequence

from bnpbench.report.cells import Place, measured
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.groups import Group
from bnpbench.report.view import Cell, View
from bnpbench.text import DASH

_COLUMNS = {
    "flops_model": ("model", "not counted"),
    "flops_method_predicted": ("method, predicted", "no formula"),
    "flops_method_counted": ("method, counted", "not counted"),
    "flops_method_executed": ("method, executed", "not counted"),
    "flops_method_products": ("products of these", "not counted"),
    "operators_per_step": ("operators", "not counted"),
    "kernels_per_step": ("kernels", "not counted"),
}


def costs(view: View, groups: Sequence[Group]) -> Section:
    """One table for each group; columns that are null or 0 in every cell of the suite are left out."""
    there = [name for name in _COLUMNS if any(cell.row.get(name) for cell in view.cells)]
    forms = any(cell.row.get("bnp_form") is not None for cell in view.cells)
    return Section("FLOPs per step", tables=tuple(_table(group, there, forms) for group in groups))


def _table(group: Group, names: Sequence[str], forms: bool) -> Table:
    rows, records = [], list[Record]()
    for method, batch_size, cells in group.places():
        place = Place("FLOPs per step", group.title, method, batch_size)
        whole, others = measured(cells)
        found = [_count(place, name, whole, others) for name in names]
        form = ", ".join(dict.fromkeys(str(cell.row["bnp_form"]) for cell in whole if cell.row["bnp_form"])) or DASH
        rows.append((method, str(batch_size), *(text for text, _ in found), *([form] if forms else [])))
        records += [record for _, record in found]
    columns = ("method", "N", *(_COLUMNS[name][0] for name in names), *(["form of BNP"] if forms else []))
    note = (
        "Counts, the same in every run. Predicted by the paper's formula; counted on the plain algorithm; executed by "
        "the cell's eager step. A multiply-add is 2."
    )
    if "flops_method_products" in names:
        note += (
            " Products of these: to train a scale and shift of the input takes the gradient of what the first layer "
            "reads, which nothing else asks for."
        )
    return Table(group.title, columns, tuple(rows), (note,), tuple(records))


def _count(place: Place, name: str, cells: Sequence[Cell], others: str) -> tuple[str, Record]:
    counts = sorted({int(cell.row[name]) for cell in cells if cell.row[name] is not None})
    if not counts:
        return place.empty(name, _COLUMNS[name][1] if cells else others)
    record = Record(
        place.table, place.group, place.method, place.batch_size, name, counts[0], counts[0], counts[-1], len(cells)
    )
    return f" {DASH} ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))), record
