"""Curves over seeds and epochs, and the sentences beside them."""

from __future__ import annotations

import math
from collections.abc import Callable

from bnpbench.report.data import Cell, views
from bnpbench.report.figures.curves import absent, counted, explained, interval_curve, over_seeds, ranged, slug
from bnpbench.statistics.times import processes_interval
from tests.support.made_results import Made


def cells(*statuses: str) -> list[Cell]:
    return [Cell(str(seed), "bnp", {"seed": seed}, "final", {"status": status}) for seed, status in enumerate(statuses)]


def test_a_curve_stands_where_every_seed_has_a_number() -> None:
    series = {"0": {1: 1.0, 2: 2.0, 3: math.nan}, "1": {1: 3.0, 2: 6.0, 3: 1.0}, "2": {1: 99.0}}
    curve = over_seeds("bnp", "loss", cells("ok", "ok", "oom"), lambda cell: series[cell.key])
    assert curve is not None
    assert (curve.x, curve.y, curve.low, curve.high, curve.n) == (
        (1.0, 2.0),
        (2.0, 4.0),
        (1.0, 2.0),
        (3.0, 6.0),
        (2, 2),
    )
    assert counted([curve]) == "Mean (line) and range (band) over 2 seeds."
    assert ranged([curve]) == "range over 2 seeds"
    assert over_seeds("bnp", "loss", cells("oom"), lambda cell: series[cell.key]) is None


def test_bars_are_intervals_and_points_without_one_have_none() -> None:
    cells = {1: [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], 2: [1.0, 3.0], 3: [5.0]}
    curve = interval_curve("bnp", "ms", {size: processes_interval([epochs], "times") for size, epochs in cells.items()})
    assert (curve.y[0], curve.y[2]) == (1.25, 5.0)
    assert curve.low[0] < curve.y[0] < curve.high[0]
    assert (curve.low[2], curve.high[2]) == (5.0, 5.0)
    assert explained([curve]) == [
        "Median of the epochs of each seed, mean over seeds: 1–2, 6 epochs a point.",
        "Points without a bar have no interval.",
    ]


def test_what_is_not_drawn_is_named(make: Callable[..., Made]) -> None:
    made = make()
    for size in range(1, 9):
        made.cell("bnp", size, status="oom")
    (view,) = views(made.read())
    (group,) = view.groups
    (sentence,) = absent(group, group.batch_sizes)
    assert sentence.startswith("Not shown, or not with all seeds: bnp at N = 1 (oom), bnp at N = 2 (oom)")
    assert sentence.endswith("bnp at N = 6 (oom), and 2 more.")


def test_any_name_is_part_of_a_files_name() -> None:
    assert [slug(name) for name in ("a b/c", "..", "é", "x" * 99)] == ["a-b-c", "suite", "suite", "x" * 60]
