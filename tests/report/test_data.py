"""Which cells a report sees, and which of them share a table."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.errors import SuiteError
from bnpbench.report import render
from bnpbench.report.data import measured, narrowed, tallied, views
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def test_environments_never_share_a_table(make: Make) -> None:
    for torch, seconds in (("2.14.1", 1.0), ("2.15.0", 3.0)):
        made = make(software={"torch": torch})
        made.cell("vanilla", rows=epochs([seconds] * 6))
        results = made.read()
    text = render(results)
    assert text.count("# made on Made-up CPU") == 2
    assert "2.000" not in text  # the median of both


def test_groups_are_told_apart_by_what_does_not_follow_from_the_method(make: Make) -> None:
    made = make()
    for hidden in (10, 20):
        for method, lr in (("vanilla", 0.1), ("bn", 0.5)):
            settings = {"network": {"kind": "fc", "hidden": [hidden]}, "optimizer": {"kind": "sgd", "lr": lr}}
            made.cell(method, rows=epochs([1.0] * 6), settings=settings)
    text = render(made.read())
    assert "### Seconds per epoch: network.hidden = [10]\n" in text
    assert "- optimizer.lr = 0.1 (vanilla); 0.5 (bn)" in text


def test_null_is_missing_and_nan_stays(make: Make) -> None:
    made = make()
    key = made.cell("bnp", rows=epochs([1.0, 2.0, 3.0], [0.5, math.nan, None]), parameters=7)  # type: ignore[list-item]
    (view,) = views(made.read())
    cell = view.by_key[key]
    shares = view.series(cell, "test_accuracy")
    assert list(shares) == [1, 2]
    assert math.isnan(shares[2])
    assert view.series(cell, "block") == {}
    assert (cell.count("parameters"), cell.count("flops_model"), cell.text("message")) == (7, None, "")


def test_each_cell_has_its_own_epochs(make: Make) -> None:
    made = make()
    keys = [made.cell("bnp", size, rows=epochs([float(size)] * 2)) for size in (3, 1, 2)]
    empty = made.cell("bnp", 4, status="oom")
    (view,) = views(made.read())
    assert [view.times(view.by_key[key], "train_seconds") for key in keys] == [{1: s, 2: s} for s in (3.0, 1.0, 2.0)]
    assert view.times(view.by_key[empty], "train_seconds") == {}


def test_the_frame_has_a_row_a_cell_and_a_column_for_each_setting_that_varies(make: Make) -> None:
    made = make()
    for hidden in (10, 20):
        made.cell("bn", rows=epochs([1.0]), settings={"network": {"kind": "fc", "hidden": [hidden]}})
    (view,) = views(made.read())
    assert list(view.layout.frame.columns) == ["cell", "method", "batch_size", "seed", "'network.hidden'"]
    assert list(view.layout.frame["'network.hidden'"]) == ["[10]", "[20]"]
    assert [group.title for group in view.layout.groups] == ["network.hidden = [10]", "network.hidden = [20]"]


def test_settings_that_no_file_can_hold_are_told_apart(make: Make) -> None:
    """A lone surrogate is no text to Arrow, and so to no index of pandas."""
    made = make()
    for value in ("\ud800", "x"):
        made.cell("bn", settings={"\ud800": value}, rows=epochs([1.0]))
    made.read()
    (made.store.suite_folder / "suite.json").unlink()
    (view,) = views(read_results(made.out))
    assert {group.title for group in view.layout.groups} == {"\ud800 = \ud800", "\ud800 = x"}


def test_what_did_not_end_well_is_counted(make: Make) -> None:
    made = make()
    for seed, status in enumerate(("ok", "oom", "oom", "crashed"), 1):
        made.cell("bnp", seed=seed, rows=epochs([1.0]), status=status)
    (view,) = views(made.read())
    whole, others = measured(view.cells)
    assert (len(whole), others) == (1, "2 oom, 1 crashed")
    assert measured(view.cells[1:3]) == ([], "oom")
    assert measured([]) == ([], "not in the suite")


def test_titles_name_data_set_and_network_by_their_kind(make: Make) -> None:
    made = make()
    for kind in ("digits", "mnist"):
        made.cell("bn", rows=epochs([1.0, 1.1]), settings={"dataset": {"kind": kind}})
    results = made.read()
    (view,) = views(results)
    assert [group.title for group in view.groups] == ["digits", "mnist"]
    assert "### Seconds per epoch: mnist\n" in render(results)


def test_a_shortened_cell_says_how_far_it_went(make: Make) -> None:
    made = make()
    keys = [made.cell(method, rows=epochs([1.0]), settings={"epochs": 4}) for method in ("bn", "bnp")]
    made.document["cells"][0]["epochs"] = 15
    (view,) = views(made.read())
    assert [view.by_key[key].shortened for key in keys] == ["4 of 15 epochs", ""]


def test_seeds_of_which_nothing_was_measured_are_no_cells(make: Make) -> None:
    made = make()
    for seed in (1, 2, 3):
        for method in ("bn", "bnp"):
            made.cell(method, seed=seed, rows=epochs([1.0]) if (seed, method) in ((1, "bn"), (2, "bnp")) else None)
    (view,) = views(made.read())
    assert [(cell.label, cell.seed) for cell in view.cells] == [("bn", 1), ("bnp", 1), ("bn", 2), ("bnp", 2)]


@pytest.mark.regression
@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "method=bnq",
            r"--only method=bnq: nothing that was measured has this; there are vanilla, bnp \(did you mean 'bnp'\?\)",
        ),
        ("batch_size=17", r"there are 16"),
    ],
)
def test_what_no_cell_has_is_told_with_what_there_is(only: str, message: str, make: Callable[..., Made]) -> None:
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0]))
    with pytest.raises(SuiteError, match=message):
        narrowed(made.read(), only=[only])


def test_a_suite_that_was_not_measured_is_told_as_one(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0]))
    with pytest.raises(
        SuiteError, match=r"--suite mad: no suite that was measured has this name; there are made .*'made'"
    ):
        narrowed(made.read(), ["mad"])


def test_statuses_and_reasons_are_counted_as_each_reads() -> None:
    assert tallied(["diverged", "not measured", "diverged"]) == "2 diverged, 1 not measured"
    assert tallied(["no test_accuracy"]) == "no test_accuracy"
    assert tallied(["no test_accuracy"] * 2 + ["diverged"]) == "no test_accuracy (2 seeds), 1 diverged"


@pytest.mark.regression
def test_a_row_of_epochs_is_read_without_a_call(tmp_path: Path) -> None:
    """Calls of functions, Python's and C's, from the files to each cell's series."""

    def calls(count: int) -> int:
        made = Made(tmp_path / str(count))
        for method in ("vanilla", "bn"):
            made.cell(method, rows=epochs([0.5] * count, [0.9] * count, outlier=[False] * count))
        for view in views(made.read()):  # what is imported, and found once and for all
            assert all(view.series(cell, "train_seconds") for cell in view.cells)
        seen = [0]

        def count_one(frame: object, event: str, argument: object) -> None:
            seen[0] += event in ("call", "c_call")

        threading.setprofile(count_one)
        sys.setprofile(count_one)
        try:
            for view in views(read_results(made.out)):
                for cell in view.cells:
                    found = [view.times(cell, "train_seconds"), view.series(cell, "test_accuracy")]
                    assert [len(series) for series in found] == [count, count]
                    view.epochs.of(cell.key, "outlier")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return seen[0]

    few, many = calls(20), calls(2000)
    assert many - few < 2 * (2000 - 20)  # a call a row, of one column of the three that are read
