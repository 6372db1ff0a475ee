"""What goes over epochs and iterations, as data."""

from __future__ import annotations

import math
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


def test_training_is_mean_and_range_over_whole_seeds(make: Callable[..., Made]) -> None:
    made = make()
    accuracy = {1: [0.2, 0.4, 0.6], 2: [0.3, 0.8, 0.7]}
    for seed, values in accuracy.items():
        made.cell("bnp", 16, seed, epochs([1.0] * 3, values, train_loss=[2.0, 1.0 * seed, 0.5]))
    made.cell("bnp", 16, 3, epochs([1.0] * 3, [0.9, 0.9, 0.9], train_loss=[9.0] * 3), status="crashed")
    (figure,) = of_kind(made.read(), "training")
    below, above = panels(figure)
    loss, share = curve(below, "bnp", "training loss"), curve(above, "bnp", "test accuracy")
    assert (below.y.label, above.y.label) == ("training loss", "test accuracy")
    assert not loss.dashed
    assert figure.spread == "range over 2 seeds"
    assert share.y == pytest.approx((0.25, 0.6, 0.65))
    assert (share.low, share.high) == ((0.2, 0.4, 0.6), (0.3, 0.8, 0.7))
    assert loss.y == pytest.approx((2.0, 1.5, 0.5))
    assert below.title == above.title == "batch size 16"
    assert any("2 seeds" in note for note in figure.notes)
    assert any("bnp at N = 16 (1 crashed)" in note for note in figure.notes)


def test_an_exploded_loss_is_left_out_and_said(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0] * 3, [0.2, 0.4, 0.6], train_loss=[1e18, 2.0, 1.0]))
    made.cell("bn", 16, 1, epochs([1.0] * 3, [0.2, 0.4, 0.6], train_loss=[20.0, 3.0, 2.0]))
    (figure,) = of_kind(made.read(), "training")
    losses, shares = panels(figure)
    assert curve(losses, "bnp", "training loss").x == (2.0, 3.0)
    assert curve(shares, "bnp", "test accuracy").x == (1.0, 2.0, 3.0)
    assert curve(losses, "bn", "training loss").y == (20.0, 3.0, 2.0)
    assert "Not drawn: training losses above 20, in 1 of 6 epochs." in figure.notes


def test_a_panel_for_each_batch_size_that_has_data(make: Callable[..., Made]) -> None:
    made = make()
    for size in range(1, 9):
        made.cell("bnp", size, 1, epochs([1.0] * 2, [0.1, 0.2]))
    made.cell("bnp", 9)
    made.cell("bn", 1, status="not-applicable")
    found = of_kind(made.read(), "training")
    assert [[panel.title for panel in panels(figure)] for figure in found] == [
        [f"batch size {n}" for n in sizes] for sizes in ((1, 2, 3), (4, 5, 6), (7, 8))
    ]
    assert [figure.name for figure in found] == [f"made-training-{place}" for place in (1, 2, 3)]
    assert {panel.y.label for figure in found for panel in panels(figure)} == {"test accuracy"}


def test_loss_stands_above_accuracy(make: Callable[..., Made]) -> None:
    made = make()
    for size in (1, 2):
        made.cell("bnp", size, 1, epochs([1.0] * 2, [0.1, 0.2], train_loss=[2.0, 1.0]))
    (figure,) = of_kind(made.read(), "training")
    assert [(panel.title, panel.y.label) for panel in panels(figure)] == [
        ("batch size 1", "training loss"),
        ("batch size 2", "training loss"),
        ("batch size 1", "test accuracy"),
        ("batch size 2", "test accuracy"),
    ]


def test_cumulative_time_stops_where_an_epoch_has_no_time(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0, 2.0, 3.0]))
    made.cell("bn", 16, 1, epochs([1.0, 2.0, math.nan, 4.0]))
    (figure,) = of_kind(made.read(), "cumulative-time")
    (panel,) = panels(figure)
    assert curve(panel, "bnp", "seconds").y == (0.0, 1.0, 3.0, 6.0)
    assert curve(panel, "bn", "seconds").y == (0.0, 1.0, 3.0)


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
