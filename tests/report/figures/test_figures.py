"""All figures of a report: names of their own, panels that fit, points that an axis has room for."""

from __future__ import annotations

from collections.abc import Callable

from bnpbench.report.data import views
from bnpbench.report.figures import Panel, figures
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs


def of_two_epochs(made: Made, *sizes: int, loss: float = 1.0) -> Made:
    for size in sizes:
        made.cell("bn", size, rows=epochs([1.0, 1.0], [0.5, 0.6], train_loss=[loss, 0.5]))
    return made


def test_suites_and_environments_have_files_of_their_own(make: Callable[..., Made]) -> None:
    made = of_two_epochs(make(), 16)
    made.read()
    names = {figure.name for figure in figures(views(read_results(made.out)))}
    assert names == {"made-training", "made-cumulative-time"}
    elsewhere = of_two_epochs(make("other", hardware={"cpu": "Another"}), 16)
    elsewhere.read()
    both = figures(views(read_results(made.out, elsewhere.out)))
    assert {figure.name for figure in both} == {
        f"made-{results.store.folder.name}-{kind}"
        for results in (made, elsewhere)
        for kind in ("training", "cumulative-time")
    }


def test_more_panels_than_are_legible_are_several_files(make: Callable[..., Made]) -> None:
    found = figures(views(of_two_epochs(make(), *range(1, 9)).read()))
    assert [(figure.name, len(figure.panels)) for figure in found if figure.kind == "training"] == [
        ("made-training-1", 6),
        ("made-training-2", 2),
    ]


def test_points_that_no_axis_has_room_for_are_left_out_and_counted(make: Callable[..., Made]) -> None:
    (figure,) = (f for f in figures(views(of_two_epochs(make(), 16, loss=-1e300).read())) if f.kind == "training")
    (panel,) = figure.panels
    assert isinstance(panel, Panel)
    assert {curve.quantity: curve.x for curve in panel.curves} == {"training loss": (2.0,), "test accuracy": (1.0, 2.0)}
    assert "Left out: 1 points out of all bounds." in figure.notes
