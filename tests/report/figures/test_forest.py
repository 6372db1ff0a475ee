"""Claims as a forest plot, as data."""

from __future__ import annotations

import math
from collections.abc import Callable

from bnpbench.report.data import views
from bnpbench.report.figures import Figure, ForestPanel, figures
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


def of_kind(results: Results, kind: str) -> list[Figure]:
    return [figure for figure in figures(views(results)) if figure.kind == kind]


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


def test_axes_have_words_and_room_for_all_that_is_finite(make: Callable[..., Made]) -> None:
    made = make()
    keys = [made.cell("bnp", 16, seed, epochs([1.0] * 2, [0.5, 0.6 + seed / 100])) for seed in (1, 2, 3)]
    made.claim("test_accuracy", "value", keys, at_least=0.5)
    made.claim("reached", "value", keys, target=0.5, at_least=1)
    (figure,) = of_kind(made.read(), "claims")
    panels = [panel for panel in figure.panels if isinstance(panel, ForestPanel)]
    assert [panel.axis.label for panel in panels] == ["test accuracy", "reached 0.5"]
    for panel in panels:
        assert panel.axis.limits is not None
        low, high = panel.axis.limits
        ends = [n for row in panel.rows for n in (row.value, row.low, row.high, *row.bounds) if n is not None]
        assert all(low < number < high for number in ends if math.isfinite(number))
    assert panels[1].axis.limits == (-0.05, 1.05)  # a share of seeds
