"""Every null has a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.records.rows import CellRow, EpochRow, columns, metric
from bnpbench.report import render
from bnpbench.report.data import views
from bnpbench.report.query import Missing, times, value
from bnpbench.report.unknown import why
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]

UNTOLD = "NVML: Not Supported"
ALWAYS = {  # of a cell that was measured to its end on a GPU
    "test_examples", "train_examples", "last_batch", "cache_hits", "cache_misses", "peak_memory_bytes",
    "setup_seconds", "warmup_seconds", "compile_seconds", "wall_seconds",
}  # fmt: skip
NULLABLE = sorted(  # but for counts that have a table, in which their reason stands
    name
    for row in (CellRow, EpochRow)
    for name, column in columns(row).items()
    if "None" in str(row.__annotations__[name]) and (column.metric or name == "throttled") and not metric(name).label
)


def made_on_a_gpu(make: Make, seconds: float, **untold: str) -> Made:
    made = make()
    made.environment["hardware"] = {"gpu": "Made-up GPU", "gpus": 1}
    made.environment["details"] = {"gpu": {"untold": untold}}
    told = {"operators_per_step": None, "message": "costs are not known: E; kernels are not counted: no CUPTI"}
    made.cell("bnp", rows=epochs([seconds] * 6), device="cuda", engine="eager", **told)
    return made


@pytest.mark.parametrize("column", [name for name in NULLABLE if name not in ALWAYS])
def test_a_null_has_a_reason(make: Make, column: str) -> None:
    (view,) = views(made_on_a_gpu(make, 0.004).read())
    assert view.cells[0].row.get(column) is None
    assert why(view, view.cells[0], column)


def test_epochs_of_milliseconds_have_no_energy(make: Make) -> None:
    reason = "epochs of less than 1 s, for the counter of joules moves every 0.1 s"
    made = made_on_a_gpu(make, 0.004)
    text = render(made.read())
    assert f"- energy_joules is not known of 1 of 1 cell: {reason}" in text
    (view,) = views(made.read())
    for missing in (times(view, view.cells[0], "energy_joules"), value(view, view.cells[0], "energy_joules")):
        assert isinstance(missing, Missing)
        assert missing.reason.startswith(f"no energy_joules: {reason}")


def test_what_nvml_does_not_tell_is_said_once(make: Make) -> None:
    asked = {"energy": UNTOLD, "clock": UNTOLD, "throttling": UNTOLD}
    made = made_on_a_gpu(make, 0.004, **asked)
    (view,) = views(made.read())
    for column in ("energy_joules", "clock_mhz_before", "clock_mhz_after", "throttled"):
        assert why(view, view.cells[0], column) == UNTOLD
    text = render(made.read())
    assert "is not known of" not in text
    for question in asked:
        assert text.count(f"not told of the GPU: {question} ({UNTOLD})") == 1


def test_nvml_may_fail_once(make: Make) -> None:
    text = render(made_on_a_gpu(make, 2.0).read())
    for column in ("energy_joules", "clock_mhz_before", "clock_mhz_after", "throttled"):
        assert f"{column} is not known of 1 of 1 cell: NVML did not answer while they were measured" in text


def test_of_a_cpu_too(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6))
    made.cell("bn", rows=epochs([0.004] * 6))
    (view,) = views(made.read())
    long, short = view.cells
    assert "powercap" in why(view, long, "energy_joules")
    assert "epochs of less than 0.01 s" in why(view, short, "energy_joules")
    missing = value(view, long, "peak_memory_bytes")
    assert missing == Missing(
        "no peak_memory_bytes: cells that take turns share a process, and its peak is that of all"
    )
    assert "is not known of" not in render(made.read())
