"""All figures of a report: their names, what no axis has room for, how many panels a page takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bnpbench.report import figures as package
from bnpbench.report.data import Group, View, views
from bnpbench.report.figures import Curve, Figure, Panel, figures
from bnpbench.report.figures.model import LARGEST, Axis
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def curve(y: tuple[float, ...], **changes: Any) -> Curve:
    x = tuple(float(n) for n in range(1, len(y) + 1))
    return replace(Curve("bnp", "loss", x, y, y, y, n=tuple(range(1, len(y) + 1))), **changes)


def panel(*curves: Curve, log: bool = False) -> Panel:
    return Panel("N = 16", Axis("epoch"), Axis("loss", log=log), curves)


@pytest.fixture
def drawn(make: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Figure]]:
    """The figures of one suite, where these are all that is built of a group."""

    def of(*built: Figure, suites: tuple[str, ...] = ("made",)) -> list[Figure]:
        def build(view: View, group: Group) -> Iterator[Figure]:
            yield from built

        monkeypatch.setattr(package, "FIGURES", (build,))
        found: list[View] = []
        for place, suite in enumerate(suites):
            made = make(str(place), name=suite, hardware={"cpu": f"CPU {place}", "cores": 2, "gpu": None, "gpus": 0})
            made.cell("bnp", 16, 1, epochs([1.0]))
            found += views(made.read())
        return figures(found)

    return of


def one(name: str, *panels: Panel) -> Figure:
    return Figure(name, "made", "0123456789ab", "cost", "A title", panels)


def test_a_figure_is_named_by_its_suite(drawn: Callable[..., list[Figure]]) -> None:
    found = drawn(one("training", panel(curve((1.0, 2.0)))), one("cost", panel(curve((1.0,)))))
    assert [figure.name for figure in found] == ["made-training", "made-cost"]


def test_machines_of_one_suite_have_figures_of_their_own(drawn: Callable[..., list[Figure]]) -> None:
    found = drawn(one("cost", panel(curve((1.0,)))), suites=("made", "made", "other"))
    names = [figure.name for figure in found]
    assert len(set(names)) == 3
    assert names[2] == "other-cost"
    assert all(name.startswith("made-") and name.endswith("-cost") and name != "made-cost" for name in names[:2])


def test_figures_of_one_name_are_numbered(drawn: Callable[..., list[Figure]]) -> None:
    same = one("cost", panel(curve((1.0,))))
    assert [figure.name for figure in drawn(same, same)] == ["made-cost-1", "made-cost-2"]


@pytest.mark.parametrize(("panels", "parts"), [(6, [6]), (7, [6, 1]), (13, [6, 6, 1])])
def test_a_page_takes_six_panels(drawn: Callable[..., list[Figure]], panels: int, parts: list[int]) -> None:
    found = drawn(one("cost", *[panel(curve((float(n),))) for n in range(panels)]))
    assert [len(figure.panels) for figure in found] == parts
    heights = [p.curves[0].y[0] for figure in found for p in figure.panels if isinstance(p, Panel)]
    assert heights == [float(n) for n in range(panels)]


def test_points_out_of_bounds_are_left_out_and_counted(drawn: Callable[..., list[Figure]]) -> None:
    wild = curve((1.0, 10 * LARGEST, 2.0, -10 * LARGEST), low=(1.0, 1.0, 2.0, 1.0), high=(1.0, 1.0, 10 * LARGEST, 1.0))
    (figure,) = drawn(one("cost", panel(wild, curve((5.0,)))))
    (kept,) = figure.panels
    assert isinstance(kept, Panel)
    assert [(c.x, c.y, c.n) for c in kept.curves] == [((1.0,), (1.0,), (1,)), ((1.0,), (5.0,), (1,))]
    assert figure.notes == ("Left out: 3 points out of all bounds.",)


def test_a_logarithmic_axis_has_no_room_for_zero(drawn: Callable[..., list[Figure]]) -> None:
    (figure,) = drawn(one("cost", panel(curve((0.0, -1.0, 1e-31, 1e-29)), log=True)))
    (kept,) = figure.panels
    assert isinstance(kept, Panel)
    assert kept.curves[0].y == (1e-29,)
    assert figure.notes == ("Left out: 3 points out of all bounds.",)


def test_nothing_empty_is_drawn(drawn: Callable[..., list[Figure]]) -> None:
    empty = curve((2 * LARGEST,))
    (figure,) = drawn(one("cost", panel(empty), panel(curve((1.0,)), empty)), one("training", panel(empty)))
    assert [len(p.curves) for p in figure.panels if isinstance(p, Panel)] == [1]
