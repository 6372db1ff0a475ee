"""What goes over batch sizes, as data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.report.data import views
from bnpbench.report.figures import Curve, Figure, Panel, figures
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


def of_kind(results: Results, kind: str) -> list[Figure]:
    return [figure for figure in figures(views(results)) if figure.kind == kind]


def panels(figure: Figure) -> list[Panel]:
    return [panel for panel in figure.panels if isinstance(panel, Panel)]


def curve(panel: Panel, method: str, quantity: str) -> Curve:
    (found,) = (c for c in panel.curves if (c.method, c.quantity) == (method, quantity))
    return found


def test_step_time_has_the_interval_of_all_epochs(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], steps=[100] * 7))
    made.cell("bnp", 64, 1, epochs([4.0, 6.0], steps=[10] * 2))
    (figure,) = of_kind(made.read(), "step-time")
    (found,) = panels(figure)[0].curves
    assert found.x == (16.0, 64.0)
    assert found.y[0] == pytest.approx(13.0)
    assert 10.0 < found.low[0] < 13.0 < found.high[0] < 16.0
    assert found.low[1] < found.y[1] < found.high[1]
    assert figure.spread == "95 % interval"


def test_times_that_are_not_comparable_have_no_bar(make: Callable[..., Made]) -> None:
    made = make()
    for size, columns in ((16, {"jobs": 2}), (64, {})):
        for method, factor in (("vanilla", 1.0), ("bnp", 1.5)):
            rows = epochs([factor * s for s in (1.0, 1.1, 1.2, 1.05, 1.15, 1.3)], [0.5] * 6, steps=[100] * 6)
            made.cell(method, size, 1, rows, flops_method_predicted=size, flops_method_counted=size, **columns)
    found = {figure.kind: figure for figure in figures(views(made.read()), every=True)}
    step = curve(panels(found["step-time"])[0], "bnp", "milliseconds a step")
    more = curve(panels(found["cost"])[1], "bnp", "ms a step more")
    for kind in ("cost-and-gain", "step-time", "cost", "cumulative-time"):
        told = "Seconds are not comparable: 2 blocks were measured at a time (2 of 4 cells)."
        assert told in found[kind].notes, kind
    assert not any("not comparable" in note for note in found["training"].notes)
    for drawn in (step, more):
        assert (drawn.low[0], drawn.high[0]) == (drawn.y[0], drawn.y[0])
        assert drawn.low[1] < drawn.y[1] < drawn.high[1]


def test_one_batch_size_is_no_curve(make: Callable[..., Made]) -> None:
    made = make()
    for method in ("vanilla", "bn", "bnp"):
        rows = epochs([1.0] * 6, steps=[100] * 6)
        made.cell(method, 16, 1, rows, flops_method_predicted=100, flops_method_counted=100)
    kinds = {figure.kind for figure in figures(views(made.read()))}
    assert not kinds & {"step-time", "cost"}


def test_cost_marks_predicted_and_measured_crossing(make: Callable[..., Made]) -> None:
    made = make()
    sizes = (1, 10, 100, 1000)
    for size in sizes:
        for method, flops, seconds in (("vanilla", 0, 1.0), ("bn", 100 * size, 1.0 + size), ("bnp", 2000, 51.0)):
            rows = epochs([seconds] * 6, steps=[1000] * 6)
            made.cell(method, size, 1, rows, flops_method_predicted=flops, flops_method_counted=flops)
    (figure,) = of_kind(made.read(), "cost")
    flops, measured = panels(figure)
    assert [mark.x for mark in flops.marks] == pytest.approx([20.0, 20.0])
    assert [(mark.text, mark.x) for mark in measured.marks] == [("measured", pytest.approx(50.0))]
    assert curve(measured, "bnp", "ms a step more").y == pytest.approx((50.0,) * 4)
    assert "vanilla" not in {c.method for c in measured.curves}
    assert any("N ≈ 20 (predicted)" in note and "50 (measured)" in note for note in figure.notes)


@pytest.mark.regression
def test_where_the_intervals_hold_nought_a_crossing_is_undecided(make: Callable[..., Made]) -> None:
    """It was said that they do not cross."""
    notes = {}
    for spread in (0.001, 1.0):
        made = make(f"results-{spread}")
        for size in (1, 10, 100):
            for method, seconds in (("vanilla", 1.0), ("bn", 3.0), ("bnp", 3.5)):
                jumps = [spread * jump for jump in (1, -1, 0.9, -0.9, 0.5, -0.5)]
                rows = epochs([seconds + (method == "bnp") * jump for jump in jumps], steps=[100] * 6)
                made.cell(method, size, 1, rows, flops_method_predicted=size, flops_method_counted=size)
        (figure,) = of_kind(made.read(), "cost")
        notes[spread] = " ".join(figure.notes)
    assert "or measured." in notes[0.001]
    assert "Whether they cross in this range as measured is undecided." in notes[1.0]
    assert "or measured" not in notes[1.0]
