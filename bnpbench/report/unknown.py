"""Why a cell that was measured to its end lacks a number: what the machine did not tell, or how the cell was run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bnpbench.optimizers.base import OptimizerPlugin
from bnpbench.records.rows import COUNTER_SECONDS, LEAST_BLOCK_SECONDS, LEAST_TICKS, is_own
from bnpbench.registry import built_in
from bnpbench.report.data import Cell, View
from bnpbench.text import number_of

Why = Callable[[View, Cell], str]


def why(view: View, cell: Cell, column: str) -> str:
    """The reason for a null in a column of ``cells`` or ``epochs``; empty where none is known."""
    if is_own(column):
        return "not among its metrics"
    return _REASONS[column](view, cell) if column in _REASONS else ""


def untold(view: View, cells: Sequence[Cell]) -> Iterator[str]:
    """A line for each column and reason, where readings of a GPU are not known and its environment does not say why."""
    gpu = view.environment.details.gpu
    said = set(gpu.untold.values()) if gpu else set()
    measured = [cell for cell in cells if cell.ok and _on_gpu(cell)]
    for column in _READINGS:
        lacking = [cell for cell in measured if cell.row.get(column) is None]
        for reason in dict.fromkeys(why(view, cell, column) for cell in lacking):
            if reason not in said:
                count = sum(why(view, cell, column) == reason for cell in lacking)
                yield f"{column} is not known of {count} of {number_of(len(measured), 'cell')}: {reason}"


def _on_gpu(cell: Cell) -> bool:
    return cell.row.get("device") == "cuda"


def _reading(question: str, on_cpu: str) -> Why:
    """Of what NVML is asked for; ``on_cpu`` is the reason there."""

    def reason(view: View, cell: Cell) -> str:
        if not _on_gpu(cell):
            return on_cpu
        gpu = view.environment.details.gpu
        told = gpu.untold if gpu else {}
        return told.get(question) or told.get("NVML") or "NVML did not answer while they were measured"

    return reason


def _energy(view: View, cell: Cell) -> str:
    tick = COUNTER_SECONDS["cuda" if _on_gpu(cell) else "cpu"]
    gpu = view.environment.details.gpu
    asked = not (gpu and {"energy", "NVML"} & gpu.untold.keys()) if _on_gpu(cell) else True
    if asked and any(seconds < LEAST_TICKS * tick for seconds in view.series(cell, "train_seconds").values()):
        return (
            f"epochs of less than {LEAST_TICKS * tick:g} s, for the counter of joules moves every {tick:g} s "
            "(larger dataset.train)"
        )
    return _joules(view, cell)


_joules = _reading("energy", "no counter of joules may be read here (Linux: /sys/class/powercap)")
_clock = _reading("clock", "this machine does not tell its processors' clock")
_throttled = _reading("throttling", "asked of a GPU alone")


def _noted(beginning: str, otherwise: str = "") -> Why:
    """What the cell's message says of it."""
    return lambda view, cell: next(
        (part for part in cell.text("message").split("; ") if part.startswith(beginning)), otherwise
    )


def _kernels(view: View, cell: Cell) -> str:
    return _noted("kernels are not counted")(view, cell) if _on_gpu(cell) else "counted on a GPU alone"


def _peak(view: View, cell: Cell) -> str:
    return "" if _on_gpu(cell) else "cells that take turns share a process, and its peak is that of all"


def _steps(view: View, cell: Cell) -> str:
    optimizer = cell.settings.get("optimizer")
    kind = optimizer.get("kind") if isinstance(optimizer, dict) else None
    known = built_in().kinds(OptimizerPlugin).get(str(kind))
    differ = "the optimizer's steps differ from one another" if known is not None and not known.traced else ""
    return _noted("costs are not known", differ)(view, cell)


_READINGS = ("energy_joules", "clock_mhz_before", "clock_mhz_after", "throttled")
_COSTS = ("parameters", "flops_model")
_OF_STEPS = ("bytes_per_step", "operators_per_step")
_CONDITIONED = ("bnp_layers", "bnp_parameters")
_REFRESHED = ("flops_refresh", "refresh_seconds_median")
_LAPS = ("step_seconds_median", "step_seconds_p90")
_REASONS: dict[str, Why] = {
    "energy_joules": _energy,
    "clock_mhz_before": _clock,
    "clock_mhz_after": _clock,
    "throttled": _throttled,
    "kernels_per_step": _kernels,
    "peak_memory_bytes": _peak,
    "graph_memory_bytes": lambda view, cell: "no CUDA graph was recorded",
    "other_cores": lambda view, cell: (
        f"a block of less than {LEAST_BLOCK_SECONDS:g} s, or a machine that does not tell"
    ),
    "test_bits_per_token": lambda view, cell: "the data are no text",
    "validation_accuracy": lambda view, cell: "no example was held out (validation)",
    **dict.fromkeys(_COSTS, _noted("costs are not known")),
    **dict.fromkeys(_OF_STEPS, _steps),
    "sites_served": _noted("costs are not known", "the network is built with its method's layers"),
    **dict.fromkeys(_CONDITIONED, _noted("costs are not known", "no BNP, or not recorded yet when they were measured")),
    "method_state_bytes": _noted(
        "costs are not known", "no preconditioner, or not recorded yet when they were measured"
    ),
    "optimizer_state_bytes": lambda view, cell: "not recorded yet when they were measured",
    **dict.fromkeys(_REFRESHED, lambda view, cell: "no step refreshes what its method keeps"),
    **dict.fromkeys(_LAPS, lambda view, cell: "too few steps were timed by themselves"),
}
