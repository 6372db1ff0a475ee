"""Times and their ratios, from made-up epochs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from bnpbench.report import render
from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
TITLE = "Time per epoch"


@pytest.mark.regression
@pytest.mark.parametrize(
    ("methods", "baseline", "bases"),
    [
        (("native", "bnp+native"), "native", ["native"]),
        (("gn", "ln"), None, ["gn"]),
        (("vanilla", "native", "bn"), "native", ["native", "vanilla", "bn"]),
        (("vanilla", "bn", "ln"), "bn", ["bn", "vanilla"]),
        (("vanilla", "bn", "ln"), None, ["vanilla", "bn"]),
        (("native",), "native", []),
    ],
)
def test_ratios_are_to_the_baseline_to_vanilla_and_to_bn(
    make: Make, methods: tuple[str, ...], baseline: str | None, bases: list[str]
) -> None:
    """Where the suite named another than the last two, or had none of them, it had no ratios to its baseline."""
    made = make()
    made.document["baseline"] = baseline
    for place, method in enumerate(methods):
        made.cell(method, rows=epochs([2.0**place] * 6))
    (section,) = (found for chapter in chapters(made.read()) for found in chapter.sections if found.title == TITLE)
    assert [table.title for table in section.tables] == ["Seconds per epoch", *(f"Ratio to {base}" for base in bases)]
    for base, table in zip(bases, section.tables[1:], strict=True):
        others = [method for method in methods if method != base]
        assert [row[0] for row in table.rows] == others
        ratios = [2.0 ** (methods.index(method) - methods.index(base)) for method in others]
        assert [record.value for record in table.records] == ratios


def test_methods_that_took_no_turns_have_no_ratio_and_the_report_says_why(make: Make) -> None:
    made = make()
    made.document["measure"] = {}
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0] * 6), alone=True)
    text = render(made.read())
    assert "No ratios: the methods were not measured in turn" in text
    assert "Ratio to" not in text


def test_cells_of_a_block_that_ran_again_one_by_one_took_no_turns(make: Make) -> None:
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0] * 6, turn=[None] * 6))
    text = render(made.read())
    assert "No ratios: the methods were not measured in turn" in text
    assert "pairs of epochs" not in text


def test_methods_that_differ_in_more_than_the_method_took_no_turns_and_the_report_says_so(make: Make) -> None:
    """As after ``[select]``, where each has a rate of its own."""
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0] * 6), alone=True)
    text = render(made.read())
    assert "No ratios: only cells that agree in all settings but the method took turns" in text


def test_ratios_without_an_interval_say_why(make: Make) -> None:
    made = make()
    made.cell("vanilla", rows=epochs([1.0] * 6))
    made.cell("bnp", rows=epochs([2.0] * 6))
    made.cell("bn", rows=epochs([2.0]))
    text = render(made.read())
    assert "2 of 2 ratios have no interval (6 equal values, n = 1): run more epochs or seeds." in text
    assert "| bnp      | 2.000 (2.000–2.000, n = 6)" in text


def test_a_ratio_of_several_processes_is_of_their_medians(make: Make) -> None:
    """2 / 1.01 and 2 * 1.01 of two processes, however many epochs each has: 2, and Student's t over both."""
    made = make()
    for seed, ratios in ((1, [2 / 1.01, 1.9, 2.1, 2 / 1.01, 90.0]), (2, [2 * 1.01])):
        made.cell("vanilla", seed=seed, rows=epochs([1.0] * len(ratios)))
        made.cell("bnp", seed=seed, rows=epochs(ratios))
    text = render(made.read())
    half = 12.70620 * math.log(1.01)
    assert f"| bnp      | 2.000 [{2 * math.exp(-half):.3f}, {2 * math.exp(half):.3f}]" in text
    assert "Median and 95 % interval over 6 pairs of epochs measured in turn of 2 processes." in text


@pytest.mark.regression
def test_where_times_are_not_comparable_the_note_speaks_of_their_range(make: Make) -> None:
    """It said that an interval was shown, of two epochs of each of three processes."""
    made = make()
    for seed in (1, 2, 3):
        for method, factor in (("vanilla", 1.0), ("bnp", 2.0), ("bn", 3.0)):
            base = factor * (1 + (factor - 1) * seed / 500)  # ratios differ from seed to seed
            rows = epochs([base * (1 + (seed + place) / 100) for place in range(3)])
            made.cell(method, seed=seed, rows=rows[: 2 + (method != "bn")], jobs=1 + (method == "bn"))
    (section,) = (found for chapter in chapters(made.read()) for found in chapter.sections if found.title == TITLE)
    notes = {table.title: table.notes[0] for table in section.tables}
    over = "epochs of 3 processes"
    assert (
        notes["Seconds per epoch"]
        == f"Seconds of training: median and 95 % interval over 9 {over}, or range over 6 {over}."
    )
    over = "pairs of epochs measured in turn of 3 processes"
    assert notes["Ratio to vanilla"] == f"Median and 95 % interval over 9 {over}, or range over 6 {over}."
    assert notes["Ratio to bn"] == "Median and range over 6 pairs of epochs measured in turn of 3 processes."


@pytest.mark.regression
def test_where_no_time_is_comparable_the_note_promises_no_interval(make: Make) -> None:
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0, 1.1, 1.2]), jobs=2)
    text = render(made.read())
    assert "Seconds of training: median and range over 3 epochs of 1 process." in text
    assert "Median and range over 3 pairs of epochs measured in turn of 1 process." in text


def test_a_noisy_ratio_carries_a_warning_that_knows_what_is_on(make: Make) -> None:
    made = make()
    made.cell("vanilla", rows=epochs([1.0] * 6))
    made.cell("bnp", rows=epochs([0.8, 1.5, 1.0, 1.3, 0.7, 1.1]))
    text = render(made.read())
    assert "Noisy: 1 of 1 interval is wider than ±5%" in text
    assert "(turns are taken and warm-up is apart already)" in text
    made.document["measure"] = {"interleave": ["method"]}
    assert "keep the warm-up apart (warmup_epochs = 1)" in render(made.read())
