"""What a step costs: FLOPs and operators, and which of launches, bytes and arithmetic bounds its time.

FLOPs are the model's, and the method's as predicted, counted and executed. A step is bounded by the rates of the
machine that it was measured on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bnpbench.methods.base import MethodPlugin
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.records.documents import Rate
from bnpbench.records.rows import metrics
from bnpbench.registry import built_in
from bnpbench.report.data import Cell, Group, View, measured
from bnpbench.report.document import Entry, Place, Section, Table
from bnpbench.report.query import comparable, step_seconds
from bnpbench.statistics.times import processes_interval
from bnpbench.text import DASH, dash, significant

_COLUMNS = {name: metric for name, metric in metrics("cells").items() if metric.label}
_BOUNDS = (
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
_LIMIT = "of the limit"
_RATE_OF = {"fp16": "bf16"}  # matrix units are as fast in both
_BOUNDS_TITLE = "What bounds a step"
_NOTE = (
    "Roofline: the longer of FLOPs over the rate of a matrix product and bytes over the memory's bandwidth, both the "
    "best of their repetitions. FLOPs: model and method. Bytes, the least traffic: each parameter, gradient, moment of "
    "the optimizer and running statistic read and written once, each tensor kept for the backward pass written and "
    "read once, the batch read once. Ratio: measured over roofline. Bound by: the longest of arithmetic, bytes and "
    "launches: operators of an eager step, kernels of a compiled one on a GPU, over the rate of operators that do next "
    "to nothing; kernels of a recorded one over their rate in a graph."
)
_LIMIT_NOTE = (
    "Of the limit: the roofline by the fastest kernel of a float32 product that was found on this machine, as a share "
    "of what was measured; the roofline beside it is by the library that eager steps call."
)
_GET = (
    "not known: the peak rates of this machine are not recorded; bnpbench env --measure measures them, and the next "
    "bnpbench run records them, without measuring a finished cell again"
)
_OTHERS = (
    "not known: the peak rates of this machine are those of one thread and of all cores, on the CPU in float32 alone; "
    "none of these cells ran so"
)


def costs(view: View) -> Section:
    """One table for each group; columns that are null or 0 in every cell of the suite are left out."""
    there = [name for name in _COLUMNS if any(cell.row.get(name) for cell in view.cells)]
    forms = any(cell.row.get("bnp_form") is not None for cell in view.cells)
    return Section("FLOPs per step", tables=tuple(_table(group, there, forms) for group in view.groups))


def _table(group: Group, names: Sequence[str], forms: bool) -> Table:
    rows = list[tuple[str | Entry, ...]]()
    for method, batch_size, cells in group.places():
        place = Place("FLOPs per step", group.title, method, batch_size)
        whole, others = measured(cells)
        found = [_counted(place, name, whole, others) for name in names]
        form = ", ".join(dict.fromkeys(filter(None, (cell.text("bnp_form") for cell in whole)))) or DASH
        rows.append((method, str(batch_size), *found, *([form] if forms else [])))
    columns = ("method", "N", *(_COLUMNS[name].label for name in names), *(["form of BNP"] if forms else []))
    note = (
        "Counts, the same in every run. Predicted by the paper's formula; counted on the plain algorithm; executed by "
        "the cell's eager step. A multiply-add is 2."
    )
    kinds = built_in().kinds(MethodPlugin)
    if any(issubclass(kinds.get(cell.kind, MethodPlugin), GradientPlugin) for cell in group.cells):
        note += " Of BNP's kin the formula is ours."
    if "flops_method_products" in names:
        note += (
            " Products of these: to train a scale and shift of the input takes the gradient of what the first layer "
            "reads, which nothing else asks for."
        )
    return Table(group.title, columns, tuple(rows), (note,))


def _counted(place: Place, name: str, cells: Sequence[Cell], others: str) -> Entry:
    counts = sorted({count for cell in cells if (count := cell.count(name)) is not None})
    if not counts:
        return place.empty(name, _COLUMNS[name].absent if cells else others)
    shown = f" {DASH} ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return place.entry(name, counts[0], counts[0], counts[-1], len(cells), shown=shown)


# --- what bounds a step -------------------------------------------------------------------


def _fits(rate: Rate, cell: Cell) -> bool:
    """Whether a cell ran so."""
    device = cell.row.get("device")
    return rate.device == device and (device != "cpu" or rate.threads == cell.row.get("threads"))


@dataclass(frozen=True)
class _Best:
    """The best a second of one device with so many threads: bytes, operations in a cell's precision, operators.

    Attributes:
        core: operations by the fastest kernel, where several were tried in the cell's precision.
    """

    bandwidth: float
    product: float
    operators: float
    recorded: float | None = None
    core: float | None = None

    def bounds(self, cell: Cell) -> dict[str, float]:
        """Seconds that each of the three takes at least, of a cell whose costs are known."""
        found = {
            "arithmetic": _flops(cell) / self.product,
            "bytes": (cell.count("bytes_per_step") or 0) / self.bandwidth,
        }
        engine = cell.text("engine_active") or str(cell.row["engine"])
        count = cell.count("operators_per_step" if engine == "eager" else "kernels_per_step")
        rate = self.recorded if engine.startswith("graphed") else self.operators
        if count is not None and rate is not None:
            found["launches"] = count / rate
        return found


def bounds(view: View) -> Section | None:
    """A table for each group whose rates are known; one line where none are; None where no cell has its costs."""
    if not any(_is_counted(cell) for cell in view.cells):
        return None
    known = _measured_rates(view)
    tables = [table for group in view.groups if known and (table := _bounds_table(view, group, known)).rows]
    if tables:
        return Section(_BOUNDS_TITLE, tables=tuple(tables))
    return Section(_BOUNDS_TITLE, (_OTHERS if known else _GET,))


def _measured_rates(view: View) -> list[Rate]:
    """As far as the file, which may be anyone's, holds them."""
    rates = filter(None, view.environment.rates.rates if view.environment.rates else ())
    return [rate for rate in rates if all(0 < x < 1e30 for x in (rate.median, rate.low, rate.high))]


def _best(known: Sequence[Rate], cell: Cell) -> _Best | None:
    """The rates that a cell's time is set beside; None where they were not measured with its device and threads."""
    best = {rate.quantity: rate.high for rate in known if _fits(rate, cell)}
    precision = _RATE_OF.get(cell.text("precision"), cell.text("precision") or "float32")
    if not {"bandwidth", precision, "operators"} <= best.keys():
        return None
    core = best.get("core") if precision == "float32" else None
    return _Best(best["bandwidth"], best[precision], best["operators"], best.get("recorded"), core)


def _bounds_table(view: View, group: Group, known: Sequence[Rate]) -> Table:
    rows, entries = list[tuple[str | Entry, ...]](), list[Entry]()
    limits = any(rate.quantity == "core" and _fits(rate, cell) for rate in known for cell in group.cells if cell.ok)
    for method, batch_size, cells in group.places():
        place = Place(_BOUNDS_TITLE.lower(), group.title, method, batch_size)
        whole = [cell for cell in measured(cells)[0] if _is_counted(cell)]
        rates = _best(known, whole[0]) if whole else None
        series = [[1e3 * s for s in step_seconds(view, cell).values()] for cell in whole]
        if rates is None or not any(series):
            continue
        row = _bounds_row(place, whole, rates, series)
        operators, kernels = (_count(whole[0].count(name)) for name in ("operators_per_step", "kernels_per_step"))
        rows.append(
            (
                method,
                str(batch_size),
                _count(_flops(whole[0])),
                row["bytes"],
                operators,
                kernels,
                row["roofline"],
                row["measured"],
                row["ratio"],
                row["bound by"],
                *([row.get("limit", dash())] if limits else []),
            )
        )
        entries += row.values()
    columns, notes = (*_BOUNDS, *([_LIMIT] if limits else [])), (_NOTE, *([_LIMIT_NOTE] if limits else []))
    return Table(group.title, columns, tuple(rows), (*notes, *_told(group, known)), tuple(entries))


def _bounds_row(
    place: Place, cells: Sequence[Cell], rates: _Best, series: Sequence[Sequence[float]]
) -> Mapping[str, Entry]:
    """The numbers of a row, in the order of records."""
    cell = cells[0]
    least = rates.bounds(cell)
    roofline = 1e3 * max(least["arithmetic"], least["bytes"])
    estimate = comparable(processes_interval([epochs for epochs in series if epochs], "times"), cells)
    ratio = estimate.value / roofline
    traffic = cell.count("bytes_per_step")
    verdict = max(least, key=lambda name: least[name])
    found = {
        "measured": place.interval("step_milliseconds", estimate, [ms for epochs in series for ms in epochs]),
        "bytes": place.entry("bytes_per_step", traffic, shown=_count(traffic)),
        "roofline": place.entry("roofline_milliseconds", roofline, shown=significant(roofline, 3)),
        "ratio": place.entry("ratio to the roofline", ratio, shown=significant(ratio, 3)),
        "bound by": place.entry("bound by", text=verdict, shown=verdict),
    }
    if rates.core is not None:
        share = 1e3 * max(_flops(cell) / rates.core, least["bytes"]) / estimate.value
        found["limit"] = place.entry("share of the limit", share, shown=f"{100 * share:.0f} %")
    return found


def _told(group: Group, known: Sequence[Rate]) -> list[str]:
    """The rates of the group's devices and threads."""
    lines = []
    for rate in known:
        if any(_fits(rate, cell) for cell in group.cells if cell.ok):
            median, low, high = rate.shown
            threads = f", threads {rate.threads}" if rate.device == "cpu" else ""
            kernel = f" by {rate.kernel}" if rate.kernel else ""
            lines.append(f"{rate.quantity} {median}{kernel} ({low} to {high}; {rate.device}{threads})")
    return [f"Rates of this machine, median and range: {', '.join(lines)}."]


def _flops(cell: Cell) -> int:
    """Operations of a step: the model's and the method's."""
    return (cell.count("flops_model") or 0) + max(cell.count("flops_method_executed") or 0, 0)


def _is_counted(cell: Cell) -> bool:
    return cell.ok and None not in (cell.row.get("bytes_per_step"), cell.row.get("flops_model"))


def _count(count: int | None) -> str:
    return dash() if count is None else f"{count:,}"
