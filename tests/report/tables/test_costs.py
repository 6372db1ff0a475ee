"""What bounds a step, from made-up rates and costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bnpbench.report import render
from bnpbench.report.document import Section
from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs

COUNTS = {"device": "cpu", "threads": 1, "precision": "float32", "flops_method_executed": 0, "operators_per_step": 10}


def with_rates(made: Made, *, threads: int = 1, **rates: float) -> Made:
    """A machine of 1e9 bytes, 1e12 operations and 1e6 operators a second at best."""
    best = {"bandwidth": 1e9, "float32": 1e12, "operators": 1e6, "recorded": 1e7, **rates}
    entries = [
        {
            "device": "cpu",
            "threads": threads,
            "quantity": name,
            "median": x / 2,
            "low": x / 4,
            "high": x,
            "repetitions": 7,
        }
        for name, x in best.items()
    ]
    made.environment["rates"] = {"measured": "2026-01-02", "libraries": ["MKL"], "rates": entries}
    return made


def section(made: Made) -> Section | None:
    found = [s for chapter in chapters(made.read()) for s in chapter.sections if s.title == "What bounds a step"]
    return found[0] if found else None


COMPILED = {"engine": "compiled", "engine_active": "compiled"}
GRAPHED = {"engine": "graphed", "engine_active": "graphed(compiled)"}


@pytest.mark.parametrize(
    ("counts", "roofline", "ratio", "verdict"),
    [
        ({"flops_model": 10**9, "bytes_per_step": 1000}, 1.0, 20.0, "arithmetic"),
        ({"flops_model": 10**6, "bytes_per_step": 5 * 10**6}, 5.0, 4.0, "bytes"),
        ({"flops_model": 10**6, "bytes_per_step": 1000}, 1e-3, 2e4, "launches"),
        ({"flops_model": 4 * 10**8, "flops_method_executed": 6 * 10**8, "bytes_per_step": 9}, 1.0, 20.0, "arithmetic"),
        ({"flops_model": 10**6, "bytes_per_step": 1000, **COMPILED}, 1e-3, 2e4, "arithmetic"),
        ({"flops_model": 10**6, "bytes_per_step": 1000, **COMPILED, "kernels_per_step": 30}, 1e-3, 2e4, "launches"),
        ({"flops_model": 10**7, "bytes_per_step": 10, **GRAPHED, "kernels_per_step": 30}, 1e-2, 2e3, "arithmetic"),
        ({"flops_model": 10**7, "bytes_per_step": 10, **GRAPHED, "kernels_per_step": 300}, 1e-2, 2e3, "launches"),
    ],
)
def test_the_longest_of_three_bounds(
    make: Callable[..., Made], counts: dict[str, Any], roofline: float, ratio: float, verdict: str
) -> None:
    made = with_rates(make())
    made.cell("bnp", 16, 1, epochs([0.2] * 6, steps=[10] * 6), **{**COUNTS, **counts})
    found = section(made)
    assert found is not None
    numbers = {record.quantity: record for record in found.tables[0].records}
    assert numbers["roofline_milliseconds"].value == pytest.approx(roofline)
    assert numbers["step_milliseconds"].value == pytest.approx(20.0)
    assert numbers["ratio to the roofline"].value == pytest.approx(ratio)
    assert numbers["bound by"].text == verdict == found.tables[0].texts[0][-1]
    assert "bandwidth 0.5 GB/s (0.2 to 1.0; cpu, threads 1)" in found.tables[0].notes[1]
    assert "float32 500.0 GFLOP/s (250.0 to 1,000.0; cpu, threads 1)" in found.tables[0].notes[1]
    assert "operators 500.0 thousand a second (250.0 to 1,000.0; cpu, threads 1)" in found.tables[0].notes[1]


def test_a_time_that_is_not_comparable_has_no_interval(make: Callable[..., Made]) -> None:
    made = with_rates(make())
    rows, costs = epochs([0.2, 0.21, 0.22] * 3, steps=[10] * 9), {"flops_model": 10**9, "bytes_per_step": 1000}
    for size, jobs in ((16, 1), (32, 2)):
        made.cell("bnp", size, 1, rows, **COUNTS, **costs, jobs=jobs)
    found = section(made)
    assert found is not None
    times = [record for record in found.tables[0].records if record.quantity == "step_milliseconds"]
    assert [(time.value, time.low is None) for time in times] == [
        (pytest.approx(21.0), False),
        (pytest.approx(21.0), True),
    ]
    assert "not comparable" in times[1].text


def test_formulas_of_bnps_kin_are_said_to_be_ours(make: Callable[..., Made]) -> None:
    for kind, ours in (("bnp", False), ("kfac", True)):
        made = make(kind)
        made.cell(kind, 16, 1, epochs([1.0]), flops_model=1, flops_method_predicted=2)
        assert ("Of BNP's kin the formula is ours." in render(made.read())) == ours


def test_the_share_of_the_limit_is_by_the_fastest_kernel(make: Callable[..., Made]) -> None:
    made = with_rates(make(), core=2e12)
    made.environment["rates"]["rates"][-1]["kernel"] = "oneDNN"
    for method, counts in {"bn": (10**10, 1000), "bnp": (10**6, 5 * 10**6)}.items():
        of = {"flops_model": counts[0], "bytes_per_step": counts[1]}
        made.cell(method, 16, 1, epochs([0.2] * 6, steps=[10] * 6), **COUNTS, **of)
    found = section(made)
    assert found is not None
    table = found.tables[0]
    assert [row[-3:] for row in table.texts] == [("2.00", "arithmetic", "25 %"), ("4.00", "bytes", "25 %")]
    shares = {entry.method: entry.value for entry in table.records if entry.quantity == "share of the limit"}
    assert shares == pytest.approx({"bn": 0.25, "bnp": 0.25})
    assert table.columns[-1] == "of the limit"
    assert "core 1,000.0 GFLOP/s by oneDNN (500.0 to 2,000.0; cpu, threads 1)" in table.notes[-1]


def test_rates_of_other_threads_or_precisions_are_none_of_its_own(make: Callable[..., Made]) -> None:
    for name, rates, columns in (("threads", {"threads": 2}, {}), ("precision", {}, {"precision": "bf16"})):
        made = with_rates(make(name), **rates)
        made.cell("bnp", 16, 1, epochs([0.2] * 6), **{**COUNTS, **columns}, flops_model=1, bytes_per_step=1)
        found = section(made)
        assert found is not None
        assert not found.tables
        assert "none of these cells ran so" in found.lines[0]


def test_cells_without_counts_say_nothing(make: Callable[..., Made]) -> None:
    made = with_rates(make())
    made.cell("bnp", 16, 1, epochs([0.2] * 6), **COUNTS, flops_model=1)
    assert section(made) is None


@pytest.mark.parametrize("rates", [3, [], {"rates": {}}, {"rates": [None, {"quantity": 3}, {"quantity": "float32"}]}])
def test_rates_that_are_none_are_passed_over(make: Callable[..., Made], rates: Any) -> None:
    made = make()
    made.environment["rates"] = rates
    made.cell("bnp", 16, 1, epochs([0.2] * 6), **COUNTS, flops_model=1, bytes_per_step=1)
    assert "bnpbench env --measure" in render(made.read())
