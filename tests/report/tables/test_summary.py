"""What ran, what did not, and what a reader must know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from bnpbench.report import render
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def test_what_was_not_measured_for_one_reason_is_one_row(make: Make) -> None:
    made = make()
    for seed in (1, 2):
        made.cell("vanilla", 16, seed, epochs([1.0] * 6, [0.5] * 6))
    for method in ("bn", "bnp"):
        for size in (256, 512):
            for seed in (1, 2):
                made.cell(method, size, seed)
    made.cell("ln", 512, status="crashed", message="killed by SIGSEGV")
    text = render(made.read())
    assert "| bn, bnp  | 256, 512 | 1–2     | not measured |" in text
    assert "| ln       | 512      | 1       | crashed      | killed by SIGSEGV |" in text
    assert render(made.read(), format="csv").count("not finished") == 9  # one record a cell, as before


def test_an_interval_that_nothing_bounds_says_when_it_gave_up(make: Make) -> None:
    made = make()
    made.document["measure"] = {"interleave": ["method"], "interval": 0.02, "max_epochs": None, "max_seconds": None}
    made.cell("bnp", rows=epochs([1.0] * 7), stopped_by="max_epochs")
    assert "stopped by max_epochs (none was given: after 7 epochs) before the interval was reached" in render(
        made.read()
    )


def test_what_moves_numbers_is_told(make: Make) -> None:
    made = make()
    made.cell(
        "bnp", rows=epochs([1.0] * 6), settings={"train_limit": 500}, dirty=True, throttled=True,
        engine_active="compiled", stopped_by="max_seconds", finished=datetime(2026, 2, 1, tzinfo=UTC),
    )  # fmt: skip
    text = render(made.read())
    for line in (
        "- limited: trained on the first 500 examples (train_limit)",
        "- measured from a work tree with uncommitted changes: 1 of 1 cell",
        "- measured while the clock was throttled: 1 of 1 cell",
        "- another engine than asked for ran: 1 of 1 cell (bnp)",
        "- stopped by max_seconds before the interval was reached: 1 of 1 cell",
        "- days: 2026-02-01",
    ):
        assert line in text


def test_damaged_parts_are_named_without_the_users_folders(make: Make) -> None:
    made = make()
    key = made.cell("bnp", rows=epochs([1.0]))
    made.read()
    part = made.store.folder / "cells" / f"{key}.parquet"
    part.write_bytes(b"nonsense" * 10)
    text = render(read_results(made.out))
    assert f"| made/{made.store.folder.name}/cells/{key}.parquet |" in text
    assert str(made.out) not in text


def test_seeds_of_which_nothing_was_measured_are_told_once(make: Make) -> None:
    made = make()
    for seed in (1, 2, 3):
        for method in ("vanilla", "bnp"):
            made.cell(method, 16, seed, epochs([1.0] * 6, [0.5] * 6) if seed < 3 else None)
    text = render(made.read())
    assert "## Deviations\n\n- seeds: 2 of the suite's 3\n" in text
    assert "- cells: 4: 4 ok" in text
    assert text.count("2 of the suite's 3") == 1
    assert "not measured" not in text
    assert "Not measured to the end" not in text


def test_all_seeds_are_no_deviation(make: Make) -> None:
    made = make()
    for seed in (1, 2):
        made.cell("bnp", 16, seed, epochs([1.0] * 6))
    made.cell("vanilla", 16, 2, epochs([1.0] * 6))
    assert "## Deviations" not in render(made.read())


@pytest.mark.regression
@pytest.mark.parametrize(
    ("cores", "told"),
    [
        ((0.1, 0.0), None),
        ((0.1, None), "1 of 3 blocks is not known: in less than 0.4 s they cannot be seen"),
        (
            (None, None),
            "2 of 3 blocks is not known: in less than 0.4 s they cannot be seen, or the machine does not tell",
        ),
    ],
)
def test_blocks_that_were_too_short_to_be_judged_are_counted(
    make: Make, cores: tuple[float | None, ...], told: str | None
) -> None:
    """They counted as undisturbed, and nothing said so. Cells of a block are counted once, of earlier versions not."""
    made = make()
    for seed, others in enumerate(cores, 1):
        for method in ("vanilla", "bnp"):
            made.cell(method, 16, seed, epochs([1.0]), jobs=1, other_cores=others)
    made.cell("bnp", 16, 3, epochs([1.0]))
    made.cell("bnp", 16, 4, status="not-applicable", jobs=1)
    made.cell("bnp", 16, 5, epochs([1.0]), jobs=2)  # not comparable anyway
    text = render(made.read())
    assert ("whether other processes disturbed" in text) == (told is not None)
    if told is not None:
        assert f"- whether other processes disturbed the times of {told}\n" in text


def test_settings_that_a_run_changed_are_a_deviation(make: Callable[..., Made]) -> None:
    made = make()
    made.document["changes"] = ["optimizer.lr=0.02"]
    made.cell("bnp", rows=epochs([1.0]))
    assert "- changed by --set: optimizer.lr=0.02" in render(made.read())


@pytest.mark.regression
def test_a_run_that_was_stopped_says_so(make: Make) -> None:
    """It said that fewer seeds were asked for, and to interleave what takes turns already."""
    made = make()
    for seed in (1, 2, 3):
        for method in ("vanilla", "bnp"):
            stopped = {"status": "interrupted", "message": "the run was stopped"} if seed == 1 else {}
            rows = epochs([1.0] * 2) if seed == 1 and method == "vanilla" else None
            made.cell(method, 16, seed, rows, **(stopped if rows is None else {}))
    text = render(made.read())
    assert "- stopped before its end: 5 of 6 cells were not measured; the same command goes on from there" in text
    assert "of the suite's" not in text
    assert "interleave =" not in text
    assert "No ratios: of the cells that take turns not all are measured" in text


@pytest.mark.regression
def test_settings_of_two_data_sets_are_told_by_data_set(make: Make) -> None:
    """They were those of some cells of every method, and none."""
    made = make()
    for dataset in ({"kind": "digits"}, {"kind": "synthetic", "classes": 4}):
        for method in ("vanilla", "bnp"):
            made.cell(method, rows=epochs([1.0]), settings={"dataset": dataset})
    section = render(made.read()).partition("## Settings")[2]
    assert "dataset.kind = digits; synthetic" in section
    assert "dataset.classes = 4 (synthetic)" in section
    assert "some cells" not in section
    assert "none" not in section


@pytest.mark.regression
def test_options_that_all_cells_share_stand_beside_one_that_differs(make: Make) -> None:
    """Where the learning rate differed, nothing told the optimizer's kind and momentum."""
    made = make()
    for method, rate in (("vanilla", 0.1), ("bnp", 0.5)):
        optimizer = {"kind": "sgd", "lr": rate, "momentum": 0.9, "nesterov": False, "inner": {"a": rate, "b": [1, 2]}}
        network = {"kind": "fc", "hidden": [100]} if method == "bnp" else {"kind": "cnn", "hidden": None}
        made.cell(method, rows=epochs([1.0]), settings={"optimizer": optimizer, "network": network})
    lines = render(made.read()).partition("## Settings\n\n")[2].partition("\n\n")[0].splitlines()
    assert "- optimizer = {kind = sgd, momentum = 0.9, nesterov = false, inner = {b = [1, 2]}}" in lines
    assert "- optimizer.lr = 0.1 (vanilla); 0.5 (bnp)" in lines
    assert [line for line in lines if "network" in line] == [
        "- network.kind = cnn (vanilla); fc (bnp)",
        "- network.hidden = [100] (bnp)",
    ]


def test_a_run_that_is_longer_than_its_suite_is_not_called_shortened(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 3, [0.5, 0.6, 0.7]), settings={"epochs": 3})
    assert "Deviations" not in render(made.read())
    made.document["cells"][0]["epochs"] = 2
    text = render(made.read())
    assert "- lengthened: 3 epochs instead of the suite's 2 (--epochs)\n" in text
    assert "shortened" not in text
    assert "3 of 2" not in text
