"""Accuracy and the time to a target, from made-up epochs."""

from __future__ import annotations

from collections.abc import Callable

from bnpbench.report.data import views
from bnpbench.report.document import Table
from bnpbench.report.tables.accuracy import accuracy, time_to_accuracy
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def made_up(make: Make) -> Made:
    """Two seeds; the second never reaches 0.6, and its third epoch has no accuracy."""
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0, 2.0, 4.0], [0.5, 0.7, 0.6], train_loss=[2.0, 1.0, 0.5], steps=[7] * 3))
    made.cell("bnp", 16, 2, epochs([1.0, 2.0, 4.0], [0.3, 0.4], train_loss=[2.0, 1.0, 1.5]))
    made.document["targets"] = [0.6]
    return made


def only(tables: tuple[Table, ...]) -> dict[str, str]:
    """The cells of the only row, by column."""
    (table,) = tables
    (row,) = table.texts
    return dict(zip(table.columns, row, strict=True))


def test_moments_are_over_seeds_and_say_where_they_are(make: Make) -> None:
    (view,) = views(made_up(make).read())
    assert only(accuracy(view).tables) == {
        "method": "bnp",
        "N": "16",
        "epoch 1": "0.4000 (0.3000–0.5000)",
        "last": "0.5000 (0.4000–0.6000) at 2–3",
        "best": "0.5500 (0.4000–0.7000) at 2",
        "train loss, last": "1.0000 (0.5000–1.5000) at 3",
        "seeds": "2",
    }


def test_the_time_to_a_target_is_of_those_that_reached_it(make: Make) -> None:
    (view,) = views(made_up(make).read())
    section = time_to_accuracy(view)
    assert section is not None
    row = only(section.tables)
    assert (row["seconds"], row["epochs"], row["steps"]) == ("3.000 (n = 1)", "2 (n = 1)", "14 (n = 1)")
    assert row["seeds that reached it"] == "1 of 2"
    assert [entry.value for entry in section.tables[0].records] == [3.0, 2.0, 14.0, 1]


def test_without_targets_there_is_no_time_to_them(make: Make) -> None:
    made = made_up(make)
    made.document["targets"] = []
    (view,) = views(made.read())
    assert time_to_accuracy(view) is None


def test_a_suite_may_be_about_another_number_than_accuracy(make: Make) -> None:
    made = make()
    made.document |= {"metric": "test_bits_per_token", "targets": [2.0, 1.0]}
    made.cell("bnp", 16, 1, epochs([1.0, 2.0, 4.0], [0.5, 0.7, 0.6], test_bits_per_token=[2.5, 1.75, 2.25]))
    (view,) = views(made.read())
    section, reached = accuracy(view), time_to_accuracy(view)
    assert section.title == "Test bits per token"
    assert only(section.tables)["best"] == "1.7500 (n = 1) at 2"
    assert reached is not None
    assert reached.title == "Time to test bits per token"
    assert [row[2:5] for row in reached.tables[0].texts] == [
        ("2.0", "3.000 (n = 1)", "2 (n = 1)"),
        ("1.0", "– (never)", "– (never)"),
    ]
