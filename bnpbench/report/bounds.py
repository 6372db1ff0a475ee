"""What bounds a step: launches, bytes or arithmetic, by the rates of the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bnpbench.report.cells import Place, measured
from bnpbench.report.document import Record, Section, Table
from bnpbench.report.extra import step_seconds
from bnpbench.report.groups import Group
from bnpbench.report.view import Cell, View
from bnpbench.statistics.bootstrap import cells_interval
from bnpbench.text import dash, significant

TITLE = "What bounds a step"
_COLUMNS = (
    "method",
    "N",
    "FLOPs",
    "bytes",
    "operators",
    "kernels",
    "roofline, ms",
    "measured, ms",
    "ratio",
    "bound by",
)
_NOTE = (
    "Roofline: the longer of FLOPs over the rate of a matrix product and bytes over the memory's bandwidth, both the "
    "best of their repetitions. FLOPs: model and method. Bytes, the least traffic: each parameter, gradient, moment of "
    "the optimizer and running statistic read and written once, each tensor kept for the backward pass written and "
    "read once, the batch read once. Ratio: measured over roofline. Bound by: the longest of arithmetic, bytes and, in "
    "the eager engine, launches (operators over the rate of operators that do next to nothing)."
)
_GET = (
    "not known: the peak rates of this machine are not recorded; bnpbench env --measure measures them, and the next "
    "bnpbench run records them, without measuring a finished cell again"
)
_OTHERS = (
    "not known: the peak rates of this machine are those of one thread and of all cores, on the CPU in float32 alone; "
    "none of these cells ran so"
)


@dataclass(frozen=True)
class Rates:
    """The best a second of one device with so many threads: bytes, operations in a cell's precision, operators."""

    bandwidth: float
    product: float
    operators: float

    def bounds(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Seconds that each of the three takes at least, of a cell whose costs are known."""
        found = {"arithmetic": _flops(row) / self.product, "bytes": row["bytes_per_step"] / self.bandwidth}
        if row["engine"] == "eager" and row["operators_per_step"] is not None:
            found["launches"] = row["operators_per_step"] / self.operators
        return found


def bounds(view: View, groups: Sequence[Group]) -> Section | None:
    """A table for each group whose rates are known; one line where none are; None where no cell has its costs."""
    if not any(_is_counted(cell) for cell in view.cells):
        return None
    known = bool(_entries(view.environment))
    tables = [table for group in groups if known and (table := _table(view, group)).rows]
    return Section(TITLE, tables=tuple(tables)) if tables else Section(TITLE, (_OTHERS if known else _GET,))


def rates(environment: Mapping[str, Any], cell: Cell) -> Rates | None:
    """The rates that a cell's time is set beside; None where they were not measured with its device and threads."""
    best = {entry["quantity"]: entry["high"] for entry in _entries(environment) if _fits(entry, cell)}
    precision = cell.row.get("precision") or "float32"
    if not {"bandwidth", precision, "operators"} <= best.keys():
        return None
    return Rates(best["bandwidth"], best[precision], best["operators"])


def _entries(environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What ``measure.rates`` wrote, as far as the file, which may be anyone's, holds that."""
    found = environment.get("rates")
    entries = found.get("rates") if isinstance(found, dict) else None
    return [entry for entry in entries if _is_rate(entry)] if isinstance(entries, list) else []


def _is_rate(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("quantity"), str):
        return False
    numbers = [entry.get(name) for name in ("median", "low", "high")]
    return all(isinstance(x, int | float) and not isinstance(x, bool) and 0 < x < 1e30 for x in numbers)


def _fits(entry: Mapping[str, Any], cell: Cell) -> bool:
    device = cell.row.get("device")
    return bool(entry.get("device") == device and (device != "cpu" or entry.get("threads") == cell.row.get("threads")))


def _table(view: View, group: Group) -> Table:
    rows, records = [], list[Record]()
    for method, batch_size, cells in group.places():
        place = Place(TITLE.lower(), group.title, method, batch_size)
        whole = [cell for cell in measured(cells)[0] if _is_counted(cell)]
        known = rates(view.environment, whole[0]) if whole else None
        series = [[1e3 * s for s in step_seconds(view, cell).values()] for cell in whole]
        if known is None or not any(series):
            continue
        row = whole[0].row
        found = known.bounds(row)
        roofline = 1e3 * max(found["arithmetic"], found["bytes"])
        estimate = cells_interval([epochs for epochs in series if epochs])
        text, record = place.interval("step_milliseconds", estimate, [ms for epochs in series for ms in epochs])
        counts = (_flops(row), *(row[name] for name in ("bytes_per_step", "operators_per_step", "kernels_per_step")))
        verdict = max(found, key=lambda name: found[name])
        ratio = estimate.value / roofline
        rows.append(
            (
                method,
                str(batch_size),
                *map(_count, counts),
                significant(roofline, 3),
                text,
                significant(ratio, 3),
                verdict,
            )
        )
        numbers = {"bytes_per_step": counts[1], "roofline_milliseconds": roofline, "ratio to the roofline": ratio}
        names = (TITLE.lower(), group.title, method, batch_size)
        records += [record, *(Record(*names, quantity, number) for quantity, number in numbers.items())]
        records.append(Record(*names, "bound by", text=verdict))
    return Table(group.title, _COLUMNS, tuple(rows), (_NOTE, *_told(view, group)), tuple(records))


def _told(view: View, group: Group) -> list[str]:
    """The rates of the group's devices and threads."""
    lines = []
    for entry in _entries(view.environment):
        if any(_fits(entry, cell) for cell in group.cells if cell.ok):
            median, low, high = (f"{entry[name]:.3g}" for name in ("median", "low", "high"))
            threads = f", threads {entry['threads']}" if entry["device"] == "cpu" else ""
            lines.append(f"{entry['quantity']} {median} ({low} to {high}; {entry['device']}{threads})")
    return [f"Rates a second of this machine, median and range: {', '.join(lines)}."]


def _flops(row: Mapping[str, Any]) -> int:
    """Operations of a step: the model's and the method's."""
    return int(row["flops_model"] + max(row["flops_method_executed"] or 0, 0))


def _is_counted(cell: Cell) -> bool:
    return cell.ok and None not in (cell.row.get("bytes_per_step"), cell.row.get("flops_model"))


def _count(count: int | None) -> str:
    return dash() if count is None else f"{count:,}"
