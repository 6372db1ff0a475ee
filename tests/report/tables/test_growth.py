"""The crossing of BN and BNP, and exponents, from made-up costs whose powers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bnpbench.report import render
from bnpbench.report.document import Table
from bnpbench.report.tables import chapters
from bnpbench.report.tables.growth import crossing
from tests.support.made_results import Made, epochs

SIZES = (1, 10, 100, 1000)
VANILLA = 1e-3
DRIFT = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0)  # of the epochs, alike for all that take turns: its median is 1
COSTS: dict[str, Callable[[int, int], float]] = {
    "vanilla": lambda n, width: 0.0,
    "bn": lambda n, width: 1e-6 * n * width,
    "bnp": lambda n, width: 3e-7 * width**2,
}


def sweep(made: Made, widths: Iterable[int], sizes: Iterable[int] = SIZES, **columns: Any) -> Made:
    """Steps of 1 ms, plus what each method costs: BN n w microseconds, BNP .3 w^2, so that they cross at n = .3 w."""
    for width in widths:
        for size in sizes:
            for method, cost in COSTS.items():
                rows = epochs([20 * (VANILLA + cost(size, width)) * drift for drift in DRIFT], steps=[20] * 6)
                network = {"kind": "fc", "hidden": [width] * 3}
                flops = round(1e9 * cost(size, width))
                made.cell(
                    method,
                    size,
                    1,
                    rows,
                    settings={"network": network, "engine": "eager"},
                    flops_method_predicted=flops,
                    flops_model=6 * size * width,
                    **columns,
                )
    return made


def table(made: Made, title: str) -> Table | None:
    found = [
        table
        for chapter in chapters(made.read())
        for section in chapter.sections
        for table in section.tables
        if table.title == title
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_the_measured_crossing_stands_beside_the_formulas(make: Callable[..., Made]) -> None:
    found = table(sweep(make(), (10, 100, 1000)), "Crossing of BNP and BN")
    assert found is not None
    assert found.texts == (
        ("network.hidden = [10, 10, 10]", "2.14", "5.45", "3.00", "–", "3.0 [1, 10]"),
        ("network.hidden = [100, 100, 100]", "21.4", "54.5", "30.0", "–", "30 [10, 100]"),
        ("network.hidden = [1000, 1000, 1000]", "214", "545", "300", "–", "300 [100, 1000]"),
    )
    measured = [record for record in found.records if record.quantity == "measured"]
    assert [record.value for record in measured] == pytest.approx([3.0, 30.0, 300.0])


def test_costs_that_do_not_cross_say_which_is_dearer(make: Callable[..., Made]) -> None:
    found = table(sweep(make(), (10_000, 20_000, 40_000)), "Crossing of BNP and BN")
    assert found is not None
    assert found.texts[0][-1] == "– (BNP takes more time) [1000, –]"
    dear = make("dear")
    found = table(sweep(dear, (1, 2, 3)), "Crossing of BNP and BN")
    assert found is not None
    assert found.texts[0][-1] == "– (BNP takes less time) [–, 1]"


def test_the_crossing_lies_in_its_bracket(make: Callable[..., Made]) -> None:
    """By chance the medians are equal at 30 and 100; but at 1000 BNP surely takes more time."""
    made = make()
    clear, noisy = [1.3] * 6, [1.1, 1.3] * 3
    for width in (10, 100, 1000):
        for size, bnp in ((10, clear), (30, noisy), (100, noisy), (1000, clear)):
            for method, seconds in (("vanilla", [1.0] * 6), ("bn", [1.2] * 6), ("bnp", bnp)):
                network = {"kind": "fc", "hidden": [width] * 3}
                rows = epochs([20 * s * drift for s, drift in zip(seconds, DRIFT, strict=True)], steps=[20] * 6)
                made.cell(method, size, 1, rows, settings={"network": network, "engine": "eager"})
    found = table(made, "Crossing of BNP and BN")
    assert found is not None
    assert {row[-1] for row in found.texts} == {"– (BNP takes more time) [1000, –]"}


def test_two_widths_are_no_sweep(make: Callable[..., Made]) -> None:
    assert "How costs grow" not in render(sweep(make(), (10, 100)).read())


def test_exponents_are_those_that_the_costs_were_made_with(make: Callable[..., Made]) -> None:
    found = table(sweep(make(), (10, 100, 1000)), "Exponents")
    assert found is not None
    assert found.columns == ("method", "cost", "exponent of N", "exponent of width", "points")
    rows = {row[:2]: row[2:] for row in found.texts}
    assert rows["bn", "time over vanilla"] == ("1.00 [1.00, 1.00]", "1.00 [1.00, 1.00]", "12")
    assert rows["bnp", "time over vanilla"] == ("0.00 [0.00, 0.00]", "2.00 [2.00, 2.00]", "12")
    assert rows["bnp", "operations, predicted"][1] == "2.00 [2.00, 2.00]"
    assert rows["vanilla", "operations of the model"] == ("1.00 [1.00, 1.00]", "1.00 [1.00, 1.00]", "12")
    assert {record.n for record in found.records} == {12}


def test_points_that_cost_nothing_are_left_out_and_counted(make: Callable[..., Made]) -> None:
    made = sweep(make(), (10, 100, 1000))
    for method, seconds in (("vanilla", 1.0), ("bn", 0.9)):
        network = {"kind": "fc", "hidden": [7, 7, 7]}
        made.cell(method, 1, 1, epochs([seconds] * 6, steps=[20] * 6), settings={"network": network, "engine": "eager"})
    found = table(made, "Exponents")
    assert found is not None
    rows = {row[:2]: row[2:] for row in found.texts}
    assert rows["bn", "time over vanilla"][-1] == "12 (1 left out)"


def test_networks_of_several_widths_have_no_exponent(make: Callable[..., Made]) -> None:
    made = make()
    for width in (10, 20, 30, 40):
        for method in ("vanilla", "bn"):
            settings = {"network": {"kind": "fc", "hidden": [width, 5]}, "engine": "eager"}
            made.cell(method, 16, 1, epochs([1.0] * 6, steps=[20] * 6), settings=settings)
    assert table(made, "Exponents") is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({1.0: 1.0, 100.0: 100.0}, {1.0: 10.0, 100.0: 10.0}, 10.0),  # powers: exact between the points
        ({1.0: 2.0, 4.0: 8.0, 16.0: 32.0}, {1.0: 6.0, 4.0: 6.0, 16.0: 6.0}, 3.0),
        ({1.0: -1.0, 4.0: 3.0}, {1.0: 1.0, 4.0: 1.0}, 2.0),
        ({1.0: 5.0, 2.0: 5.0}, {1.0: 5.0, 2.0: 9.0}, 1.0),
        ({1.0: 1.0, 2.0: 2.0}, {1.0: 3.0, 2.0: 4.0}, None),
        ({1.0: 1.0}, {2.0: 0.0}, None),
    ],
)
def test_crossing(left: dict[float, float], right: dict[float, float], expected: float | None) -> None:
    assert crossing(left, right) == (None if expected is None else pytest.approx(expected))
