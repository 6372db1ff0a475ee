"""What the figures show: their numbers, their colours, what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bnpbench.report.extra import crossing
from bnpbench.report.figures import Curve, Figure, ForestPanel, Panel, figures, inks, write_figures
from bnpbench.report.view import views
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


def of_kind(results: Results, kind: str) -> list[Figure]:
    return [figure for figure in figures(views(results)) if figure.kind == kind]


def panels(figure: Figure) -> list[Panel]:
    return [panel for panel in figure.panels if isinstance(panel, Panel)]


def curve(panel: Panel, method: str, quantity: str) -> Curve:
    (found,) = (c for c in panel.curves if (c.method, c.quantity) == (method, quantity))
    return found


def test_training_is_mean_and_range_over_whole_seeds(make: Callable[..., Made]) -> None:
    made = make()
    accuracy = {1: [0.2, 0.4, 0.6], 2: [0.3, 0.8, 0.7]}
    for seed, values in accuracy.items():
        made.cell("bnp", 16, seed, epochs([1.0] * 3, values, train_loss=[2.0, 1.0 * seed, 0.5]))
    made.cell("bnp", 16, 3, epochs([1.0] * 3, [0.9, 0.9, 0.9], train_loss=[9.0] * 3), status="crashed")
    (figure,) = of_kind(made.read(), "training")
    (panel,) = panels(figure)
    loss, share = curve(panel, "bnp", "training loss"), curve(panel, "bnp", "test accuracy")
    assert (loss.dashed, loss.right, share.dashed, share.right) == (True, False, False, True)
    assert share.y == pytest.approx((0.25, 0.6, 0.65))
    assert (share.low, share.high) == ((0.2, 0.4, 0.6), (0.3, 0.8, 0.7))
    assert loss.y == pytest.approx((2.0, 1.5, 0.5))
    assert panel.title == "batch size 16"
    assert any("2 seeds" in note for note in figure.notes)
    assert any("bnp at N = 16 (1 crashed)" in note for note in figure.notes)


def test_an_exploded_loss_is_left_out_and_said(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0] * 3, [0.2, 0.4, 0.6], train_loss=[1e18, 2.0, 1.0]))
    made.cell("bn", 16, 1, epochs([1.0] * 3, [0.2, 0.4, 0.6], train_loss=[20.0, 3.0, 2.0]))
    (figure,) = of_kind(made.read(), "training")
    (panel,) = panels(figure)
    assert curve(panel, "bnp", "training loss").x == (2.0, 3.0)
    assert curve(panel, "bnp", "test accuracy").x == (1.0, 2.0, 3.0)
    assert curve(panel, "bn", "training loss").y == (20.0, 3.0, 2.0)
    assert "Not drawn: training losses above 20, in 1 of 6 epochs." in figure.notes


def test_a_panel_for_each_batch_size_that_has_data(make: Callable[..., Made]) -> None:
    made = make()
    for size in range(1, 9):
        made.cell("bnp", size, 1, epochs([1.0] * 2, [0.1, 0.2]))
    made.cell("bnp", 9)
    made.cell("bn", 1, status="not-applicable")
    first, second = of_kind(made.read(), "training")
    assert [panel.title for f in (first, second) for panel in panels(f)] == [f"batch size {n}" for n in range(1, 9)]
    assert (first.name, second.name) == ("made-training-1", "made-training-2")
    assert panels(first)[0].right is None
    assert panels(first)[0].left.label == "test accuracy"


def test_cumulative_time_stops_where_an_epoch_has_no_time(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0, 2.0, 3.0]))
    made.cell("bn", 16, 1, epochs([1.0, 2.0, math.nan, 4.0]))
    (figure,) = of_kind(made.read(), "cumulative-time")
    (panel,) = panels(figure)
    assert curve(panel, "bnp", "seconds").y == (0.0, 1.0, 3.0, 6.0)
    assert curve(panel, "bn", "seconds").y == (0.0, 1.0, 3.0)


def test_step_time_has_the_interval_of_all_epochs(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], steps=[100] * 7))
    made.cell("bnp", 64, 1, epochs([4.0, 6.0], steps=[10] * 2))
    (figure,) = of_kind(made.read(), "step-time")
    (found,) = panels(figure)[0].curves
    assert found.x == (16.0, 64.0)
    assert found.y == pytest.approx((13.0, 500.0))
    assert (found.low[1], found.high[1]) == pytest.approx((400.0, 600.0))  # too few for an interval: the range
    assert 10.0 < found.low[0] < 13.0 < found.high[0] < 16.0
    assert any("range" in note for note in figure.notes)


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


def step(epoch: int, number: int, **columns: float | None) -> dict[str, object]:
    return {"epoch": epoch, "step": number, "layer": "output", "neuron": 0, "preconditioner": "batch", **columns}


def test_conditioning_counts_iterations_and_leaves_out_what_is_unknown(make: Callable[..., Made]) -> None:
    made = make()
    for seed in (1, 2):
        steps = [
            step(1, 1, kappa_hessian=100.0 * seed**2, kappa_preconditioned=10.0, kappa_d=2.0),
            step(1, 2, kappa_hessian=None, kappa_preconditioned=math.nan, kappa_d=2.0),
            step(2, 6, kappa_hessian=900.0, kappa_preconditioned=math.inf, kappa_d=4.0),
        ]
        made.cell("bnp", 16, seed, epochs([1.0, 1.0], steps=[5, 5]), steps=steps)
    (figure,) = of_kind(made.read(), "conditioning")
    hessians, matrix = panels(figure)
    before = curve(hessians, "bnp", "κ of the Hessian")
    assert before.x == (1.0, 6.0)
    assert before.y == pytest.approx((200.0, 900.0))  # geometric mean of 100 and 400
    assert (before.low[0], before.high[0]) == (100.0, 400.0)
    assert curve(hessians, "bnp", "κ of the preconditioned Hessian").x == (1.0,)
    assert curve(matrix, "bnp", "κ of D").x == (1.0, 2.0, 6.0)


def test_forest_has_a_row_for_each_estimate_and_names_the_others(make: Callable[..., Made]) -> None:
    made = make()
    keys = [made.cell("bnp", 16, seed, epochs([1.0] * 2, [0.5, 0.6 + seed / 100])) for seed in (1, 2, 3)]
    made.claim("test_accuracy", "value", keys, at_least=0.5, says="above a half")
    made.claim("test_accuracy", "value", keys, at_most=0.5, says="below a half")
    made.claim("seconds_to", "value", keys, target=0.99, at_most=1, says="soon")
    made.claim("test_accuracy", "value", ["0" * 12], at_least=0.5, says="of nothing")
    (figure,) = of_kind(made.read(), "claims")
    rows = [row for panel in figure.panels if isinstance(panel, ForestPanel) for row in panel.rows]
    assert [(row.says, row.outcome) for row in rows] == [
        ("above a half", "holds"),
        ("below a half", "fails"),
        ("soon", "fails"),
    ]
    assert rows[0].bounds == (0.5, math.inf)
    assert rows[2].value == math.inf
    assert any("of nothing" in note for note in figure.notes)


def test_nothing_to_draw(make: Callable[..., Made], tmp_path: Path) -> None:
    made = make()
    made.cell("bn", 1, status="not-applicable")
    made.cell("bnp", 1)
    assert write_figures(made.read(), tmp_path / "figures") == []


def test_one_colour_for_a_method_in_all_suites(make: Callable[..., Made]) -> None:
    made = [make(folder, name=folder) for folder in "ab"]
    for method in ("bnp", "vanilla"):
        made[0].cell(method, 16, 1, epochs([1.0]))
    for method, label in (("ln", "ln"), ("bnp", "bnp(statistics=batch)"), ("bnp", "bnp"), ("mine", "mine")):
        made[1].cell(method, 16, 1, epochs([1.0]), label=label, settings={"method": {"kind": method, "as": label}})
    found = inks([*views(made[0].read()), *views(made[1].read())])
    assert found["bnp"] == inks(views(made[0].read()))["bnp"]
    pairs = [(ink.light, ink.marker) for ink in found.values()]
    assert len(pairs) == 5 == len(set(pairs))


# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as people with each colour blindness see it.
_BLINDNESS = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}


def lab(colour: str, blindness: Sequence[Sequence[float]]) -> np.ndarray:
    """CIE L*a*b* of a colour seen so."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(blindness) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("blindness", _BLINDNESS)
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_methods_of_the_paper_are_told_apart(make: Callable[..., Made], blindness: str, ground: str) -> None:
    made = make()
    methods = ("vanilla", "bn", "bnp", "ln", "renorm", "gn", "4things", "bnp+gn")
    for method in methods:
        made.cell(method, 16, 1, epochs([1.0]))
    found = inks(views(made.read()))
    colours = {method: lab(getattr(found[method], ground), _BLINDNESS[blindness]) for method in methods}
    apart = {
        (one, other): float(np.linalg.norm(colours[one] - colours[other]))
        for one in methods
        for other in methods
        if one < other
    }
    closest = min(apart, key=lambda pair: apart[pair])
    assert apart[closest] >= 10, (closest, apart[closest])  # 2.3 is just noticeable
