"""Cost and gain as a picture: its points are the numbers of the answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.report.answer import answers
from bnpbench.report.data import views
from bnpbench.report.figures import CrossPanel, Figure, figures
from bnpbench.results import Results
from bnpbench.statistics.intervals import Estimate
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def pictures(results: Results) -> list[Figure]:
    return [figure for figure in figures(views(results)) if figure.kind == "cost-and-gain"]


def panels(figure: Figure) -> list[CrossPanel]:
    return [panel for panel in figure.panels if isinstance(panel, CrossPanel)]


def several(make: Make, sizes: tuple[int, ...] = (16, 64), seeds: tuple[int, ...] = (1, 2, 3)) -> Made:
    made = make()
    for size in sizes:
        for seed in seeds:
            for rank, method in enumerate(("vanilla", "bn", "bnp")):
                seconds = [(1 + 0.3 * rank) * (1 + 0.01 * seed) + 0.01 * epoch for epoch in range(6)]
                shares = [0.5 + 0.03 * rank + 0.005 * seed * rank] * 6
                made.cell(method, size, seed, epochs(seconds, shares, steps=[10] * 6))
    return made


def test_the_points_are_the_numbers_of_the_answer(make: Make) -> None:
    results = several(make).read()
    (figure,) = pictures(results)
    (panel,) = panels(figure)
    (view,) = views(results)
    found = list(answers(view))
    assert len(found) == len(panel.crosses) == 4
    for answer, cross in zip(found, panel.crosses, strict=True):
        cost, gain = answer.cost.estimate, answer.gain.estimate
        assert isinstance(cost, Estimate)
        assert isinstance(gain, Estimate)
        assert (cross.method, cross.label) == (answer.method, f"N = {answer.batch_size}")
        assert (cross.x, cross.x_interval) == (cost.value, (cost.low, cost.high))
        assert (cross.y, cross.y_interval) == (gain.value, (gain.low, gain.high))
        assert not cross.open
    assert panel.base == "vanilla"
    assert figure.methods == ("vanilla", "bn", "bnp")
    assert figure.spread == "95 % intervals"


def test_it_comes_first(make: Make) -> None:
    assert figures(views(several(make).read()))[0].kind == "cost-and-gain"


def test_the_baseline_and_all_points_are_within_the_axes(make: Make) -> None:
    (figure,) = pictures(several(make).read())
    (panel,) = panels(figure)
    assert panel.x.log
    assert panel.x.limits is not None
    assert panel.y.limits is not None
    for x, y in [(1.0, 0.0), *((cross.x, cross.y) for cross in panel.crosses)]:
        assert panel.x.limits[0] < x < panel.x.limits[1]
        assert panel.y.limits[0] < y < panel.y.limits[1]
    for axis in (panel.x, panel.y):
        assert 2 <= len(axis.at) <= 9
        assert axis.limits is not None
        assert all(axis.limits[0] <= tick <= axis.limits[1] for tick in axis.at)
    assert 1.0 in panel.x.at
    assert 0.0 in panel.y.at


def test_a_point_without_an_interval_is_open_and_said(make: Make) -> None:
    (figure,) = pictures(several(make, (16,), (1,)).read())
    (panel,) = panels(figure)
    assert [cross.open for cross in panel.crosses] == [True, True]
    assert [cross.y_interval for cross in panel.crosses] == [None, None]
    assert all(cross.x_interval is not None for cross in panel.crosses)
    assert "Open, no interval of the gain: all (n = 1)." in figure.notes


def test_what_is_missing_is_named(make: Make) -> None:
    made = several(make)
    made.cell("ln", 64, status="diverged")
    (figure,) = pictures(made.read())
    assert "ln" not in figure.methods
    assert "Not shown: ln at N = 64 (diverged)." in figure.notes


def test_times_that_were_not_measured_in_turn_are_named(make: Make) -> None:
    made = make()
    for seed in (1, 2, 3):
        for method in ("vanilla", "bnp"):
            made.cell(method, 16, seed, epochs([1.0 + seed / 10] * 3, [0.5] * 3, steps=[10] * 3), alone=True)
        made.cell("bn", 16, seed, status="oom")
    (figure,) = pictures(made.read())
    assert "Time, not measured in turn: bnp at N = 16." in figure.notes


def test_a_panel_for_each_batch_size_where_there_are_many(make: Make) -> None:
    (figure,) = pictures(several(make, (1, 2, 4, 8, 16)).read())
    assert [panel.title for panel in panels(figure)] == [f"batch size {size}" for size in (1, 2, 4, 8, 16)]
    assert {cross.label for panel in panels(figure) for cross in panel.crosses} == {""}
    assert len({(panel.x, panel.y) for panel in panels(figure)}) == 1


def test_an_interval_of_many_times_the_ratios_is_cut_and_said(make: Make) -> None:
    made = make()
    for seed, factor in ((1, 0.01), (2, 1.0), (3, 100.0)):
        made.cell("vanilla", 16, seed, epochs([1.0] * 3, [0.5] * 3, steps=[10] * 3))
        made.cell("bnp", 16, seed, epochs([1.1 * factor] * 3, [0.5] * 3, steps=[10] * 3))
        made.cell("bn", 16, seed, epochs([1.4 + seed / 100] * 3, [0.6] * 3, steps=[10] * 3))
    (figure,) = pictures(made.read())
    (panel,) = panels(figure)
    assert panel.x.limits is not None
    assert panel.x.limits[1] < 4
    assert "An interval that reaches the edge goes on beyond it." in figure.notes


def test_no_picture_without_a_baseline(make: Make) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0] * 3, [0.5] * 3, steps=[10] * 3))
    assert pictures(made.read()) == []


@pytest.mark.parametrize(("loss", "better"), [(0.5, 0.5), (2.0, -1.0)])
def test_a_lower_loss_is_a_gain(make: Make, loss: float, better: float) -> None:
    made = make()
    for method, final in (("vanilla", 1.0), ("bnp", loss)):
        made.cell(method, 16, 1, epochs([1.0] * 3, steps=[10] * 3, test_loss=[3.0, 2.0, final]))
    (figure,) = pictures(made.read())
    (panel,) = panels(figure)
    assert [cross.y for cross in panel.crosses] == [better]
    assert panel.y.label == "test loss below vanilla's (better →)"


def test_each_group_of_settings_has_its_own(make: Make) -> None:
    made = make()
    for hidden in ([100], [200]):
        for method in ("vanilla", "bnp"):
            settings = {"network": {"kind": "fc", "hidden": hidden}}
            made.cell(method, 16, 1, epochs([1.0] * 3, [0.5] * 3, steps=[10] * 3), settings=settings)
    assert [figure.title for figure in pictures(made.read())] == [
        "What each method costs and what it buys, over vanilla: network.hidden = [100]",
        "What each method costs and what it buys, over vanilla: network.hidden = [200]",
    ]
