"""The table that a report begins with, as readers see it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import StringIO

import pytest

from bnpbench.report import render
from bnpbench.report.data import views
from bnpbench.report.document import Section
from bnpbench.report.tables import chapters
from bnpbench.report.tables.answer import cost_and_gain
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def measured(made: Made, method: str, factor: float, share: float, **settings: object) -> None:
    for seed, wobble in enumerate((0.98, 1.0, 1.03), 1):
        rows = epochs([factor * wobble] * 2, [0.3, share + seed / 100 * factor], steps=[4, 4])
        made.cell(method, seed=seed, rows=rows, settings=settings)


def section(made: Made) -> Section:
    (view,) = views(made.read())
    found = cost_and_gain(view)
    assert found is not None
    return found


def test_a_row_says_what_a_method_costs_and_buys(make: Make) -> None:
    made = make()
    measured(made, "vanilla", 1.0, 0.5)
    measured(made, "bnp", 1.5, 0.6)
    (table,) = section(made).tables
    assert table.columns == (
        "N",
        "method",
        "time a step over vanilla",
        "cost",
        "test accuracy less vanilla's",
        "gain",
    )
    ((size, method, cost, dear, gain, better),) = table.texts
    assert (size, method, dear, better) == ("16", "bnp", "undecided", "better")  # three equal ratios decide nothing
    assert cost == "1.50"
    assert gain == "+0.110 [+0.098, +0.122]"


def test_it_stands_first_and_its_numbers_are_records(make: Make) -> None:
    made = make()
    measured(made, "vanilla", 1.0, 0.5)
    measured(made, "bnp", 1.5, 0.6)
    (chapter,) = chapters(made.read())
    assert [s.title for s in chapter.sections[:2]] == ["made on Made-up CPU", "Cost and gain"]
    records = {entry.quantity: entry for entry in chapter.sections[1].tables[0].records}
    assert records["time a step over the baseline's"].value == 1.5
    gain = records["difference of test_accuracy, method − baseline"]
    assert (gain.text, gain.value) == ("better", pytest.approx(0.11))


@pytest.mark.regression
def test_a_gain_is_called_a_difference_and_says_of_what(make: Make) -> None:
    """It was "over the baseline's", as the ratios are; of a loss the baseline's comes first, so that more is better."""
    made = make()
    made.document["metric"] = "test_loss"
    for method, loss in (("vanilla", 0.5), ("bnp", 0.2)):
        made.cell(method, rows=epochs([1.0] * 6, test_loss=[loss] * 6))
    (entry,) = (
        entry for entry in csv.DictReader(StringIO(render(made.read(), "csv"))) if "difference" in entry["quantity"]
    )
    assert entry["quantity"] == "difference of test_loss, baseline − method"
    assert float(entry["value"]) == pytest.approx(0.3)


def test_targets_stand_in_the_heading_where_there_is_one_and_in_the_rows_where_there_are_several(make: Make) -> None:
    made = make()
    made.document["targets"] = [0.5]
    measured(made, "vanilla", 1.0, 0.5)
    measured(made, "bnp", 1.5, 0.6)
    assert "seconds to 0.5 over vanilla" in section(made).tables[0].columns
    assert section(made).tables[0].spare == ("steps to 0.5 over vanilla", "seconds to 0.5 over vanilla")


def test_settings_that_vary_are_a_column(make: Make) -> None:
    made = make()
    for width in (10, 20):
        for method in ("vanilla", "bnp"):
            measured(made, method, 1.0 + width / 100, 0.5, network={"kind": "fc", "hidden": [width]})
    texts = section(made).tables[0].texts
    assert [row[0] for row in texts] == ["network.hidden = [10]", "network.hidden = [20]"]


def test_reasons_stand_above_and_a_word_in_the_place(make: Make) -> None:
    made = make()
    measured(made, "vanilla", 1.0, 0.5)
    for seed in (1, 2, 3):
        made.cell("bn", seed=seed, status="not-applicable", message="a single row")
    (table,) = section(made).tables
    assert table.reasons == ("bn at N = 16: not-applicable: a single row.",)
    assert table.texts[0][2] == "– (not-applicable)"


def test_a_single_method_has_nothing_beside_it(make: Make) -> None:
    made = make()
    measured(made, "bnp", 1.0, 0.5)
    assert section(made).lines == (
        'nothing to set the method against: another in the suite would be, such as "vanilla" or "bn"',
    )


def test_without_vanilla_and_bn_the_first_method_is_the_baseline_and_the_report_says_so(make: Make) -> None:
    """There was not one number."""
    made = make()
    measured(made, "ln", 1.0, 0.5)
    measured(made, "bnp+ln", 1.5, 0.6)
    (table,) = section(made).tables
    assert [row[:3] for row in table.texts] == [("16", "bnp+ln", "1.50")]
    assert "time a step over ln" in table.columns
    note = 'Without "vanilla" or "bn" the first method is the baseline, ln; [report] names another.'
    assert table.notes[0] == note
    made.document["baseline"] = "bnp+ln"
    assert note not in section(made).tables[0].notes
    assert "time a step over bnp+ln" in section(made).tables[0].columns


def test_one_seed_is_a_sentence_that_says_what_to_do(make: Make) -> None:
    made = make()
    for method, factor in (("vanilla", 1.0), ("bnp", 1.5), ("bn", 1.2)):
        rows = epochs([factor, 1.01 * factor, 1.03 * factor**2], [0.3, 0.5, 0.5 + factor / 100], steps=[4] * 3)
        made.cell(method, rows=rows)
    assert section(made).tables[0].reasons == ("One seed: no gain can be judged; run three or more.",)
    measured(made, "ln", 1.2, 0.5)
    assert section(made).tables[0].reasons == ("One seed: no gain can be judged; run three or more.",)


def test_an_interval_shows_the_digits_that_tell_it_from_no_difference(make: Make) -> None:
    """1.02 [1.00, 1.05] was called dearer."""
    made = make()
    for seed, ratio in enumerate((1.0133, 1.0202, 1.0271), 1):
        made.cell("vanilla", seed=seed, rows=epochs([1.0] * 2, [0.3, 0.5], steps=[4, 4]))
        made.cell("bnp", seed=seed, rows=epochs([ratio] * 2, [0.3, 0.5], steps=[4, 4]))
    row = section(made).tables[0].texts[0]
    assert row[3] == "dearer"
    assert row[2] == "1.020 [1.003, 1.037]"


def test_a_method_that_is_alone_and_has_no_meaning_there_says_why(make: Make) -> None:
    made = make()
    for seed in (1, 2):
        made.cell("bn", 1, seed, status="not-applicable", message="a single row")
    assert section(made).lines[1:] == ("bn at N = 1: not-applicable: a single row",)
    measured(made, "bn", 1.0, 0.5)
    made.document["baseline"] = "bn"
    assert section(made).lines == (
        "no method but the baseline was run",
        "bn at N = 1: not-applicable: a single row",
    )
