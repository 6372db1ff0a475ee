"""Reading folders of results: several are one, and what is none of it is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bnpbench.errors import NothingToCompare, ResultsError
from bnpbench.records.documents import Environment, SuiteRecord
from bnpbench.results import compact, read_results
from tests.support.made_results import Made, epochs
from tests.support.parts import KEY, block, hashed, reasons, store, three, written


def moved(folder: Path, elsewhere: Path) -> None:
    """Put a link where a folder was."""
    folder.mkdir(exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder") as error:
        read_results(tmp_path / "nowhere")
    assert error.value.exit_code == 2
    with pytest.raises(ResultsError):
        read_results()


@pytest.mark.parametrize("stranger", [None, "notes.txt", "photos/a.png"])
def test_a_folder_without_results_has_nothing_to_compare(tmp_path: Path, stranger: str | None) -> None:
    if stranger:
        (tmp_path / stranger).parent.mkdir(exist_ok=True)
        (tmp_path / stranger).write_text("x")
    with pytest.raises(NothingToCompare) as error:
        read_results(tmp_path)
    assert error.value.exit_code == 4


def test_a_suites_own_folder_can_be_read(tmp_path: Path) -> None:
    three(tmp_path)
    assert len(read_results(tmp_path / "made").cells) == 3


def test_several_folders_are_one_and_a_cell_counts_once(tmp_path: Path) -> None:
    written(tmp_path / "a", [block(1, 2, run=2), block(3, run=1)])
    written(tmp_path / "b", [block(1, 2, run=1), block(4, run=1)])
    results = read_results(tmp_path / "a", tmp_path / "b")
    assert dict(zip(results.cells["key"], results.cells["label"], strict=True)) == {
        hashed(1)[0]: "run 2", hashed(2)[0]: "run 2", hashed(3)[0]: "run 1", hashed(4)[0]: "run 1",
    }  # fmt: skip
    assert len(results.epochs) == 8
    assert set(results.epochs[results.epochs["key"] == KEY]["train_seconds"]) == {2.0}
    assert set(reasons(results)) == {f"{hashed(1)[0]}.parquet", f"{hashed(2)[0]}.parquet"}


def test_results_of_some_suites(tmp_path: Path) -> None:
    for name in ("a", "b"):
        kept = store(tmp_path, name)
        kept.write_suite(SuiteRecord(name=name))
        kept.write_block(*block(1))
    results = read_results(tmp_path).of_suites(["b"])
    assert (set(results.cells["suite"]), set(results.epochs["suite"]), set(results.suites)) == ({"b"}, {"b"}, {"b"})


def test_an_environment_of_a_thousand_pages_is_named(tmp_path: Path) -> None:
    path = three(tmp_path).parent.parent / "environment.json"
    path.write_text(json.dumps({"id": "0123456789ab", "details": [[]] * 10**6}))
    assert "more than" in reasons(read_results(tmp_path))["environment.json"]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 100_000, "\x00", '{"name": 3}', '{"name": ""}', '{"name": "\\ud800"}',
        '{"name": "x", "cells": 3}',
        '{"name": "x", "cells": [{}]}', '{"name": "x", "cells": [{"key": "a", "settings": []}]}',
        '{"name": "x", "claims": [3]}', '{"name": "x", "references": [{"cells": [1]}]}',
        '{"name": "x", "targets": ["a"]}',
        '{"name": "x", "measure": []}', '{"name": "x", "measure": [1]}', '{"name": "x", "shortened": 5}',
    ],
)  # fmt: skip
def test_a_suite_document_that_is_none_is_named_and_its_cells_stay(tmp_path: Path, text: str) -> None:
    three(tmp_path)
    (tmp_path / "made" / "suite.json").write_text(text)
    results = read_results(tmp_path)
    if text != '{"name": "x", "measure": []}':  # an empty table after all
        assert [path.name for path, _ in results.damaged] == ["suite.json"]
        assert results.suites == {}
        assert set(results.cells["suite"]) == {"made"}
    assert len(results.cells) == 3


@pytest.mark.parametrize("text", [None, "", "[]", '{"id": "other"}', '{"id": 3}'])
def test_an_environment_that_is_not_described_is_named_and_its_cells_stay(tmp_path: Path, text: str | None) -> None:
    three(tmp_path)
    path = tmp_path / "made" / "0123456789ab" / "environment.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    results = read_results(tmp_path)
    assert [place for place, _ in results.damaged] == [path]
    assert results.environments == {"0123456789ab": Environment(id="0123456789ab")}
    assert len(results.cells) == 3


@pytest.mark.parametrize("name", [".", "..", "cells", "epochs", "steps"])
def test_nothing_is_read_through_a_link_and_it_is_named(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = Path(os.path.normpath(written(out, [block(1, steps=1)]).folder / name))
    store(out, "other").write_block(*block(9))
    moved(folder, tmp_path / "elsewhere")
    results = read_results(out)
    assert KEY not in set(results.cells["key"])
    assert (folder, "a symbolic link; none is followed") in results.damaged
    assert len(results.cells) == 1


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    written(tmp_path / "real", [block(1)])
    (tmp_path / "out").symlink_to(tmp_path / "real")
    (tmp_path / "suite").symlink_to(tmp_path / "real" / "made")
    for place in ("out", "suite"):
        assert len(read_results(tmp_path / place).cells) == 1
        assert not read_results(tmp_path / place).damaged
    store(tmp_path / "out").write_block(*block(2))
    assert list(compact(tmp_path / "out").values()) == [2]


def test_one_frame_has_a_row_an_epoch_and_the_settings_that_vary(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for rate in (0.1, 0.5):
        optimizer = {"kind": "sgd", "lr": rate}
        made.cell("bnp", 16, 1, epochs([1.0, 2.0], [0.5, rate]), settings={"optimizer": optimizer}, alone=True)
    made.cell("bn", 16, 1, status="not-applicable", settings={"optimizer": {"kind": "sgd", "lr": 0.1}}, alone=True)
    frame = made.read().frame()
    assert len(frame) == 5
    assert set(frame.columns) >= {"suite", "environment", "method", "batch_size", "seed", "status", "epoch"}
    assert "optimizer.lr" in frame
    assert not {"optimizer.kind", "dataset.kind", "network.kind"} & set(frame.columns)
    best = frame[(frame.method == "bnp") & (frame["optimizer.lr"] == 0.5) & (frame.epoch == 2)]
    assert best.test_accuracy.tolist() == [0.5]
    assert frame[frame.method == "bn"].test_accuracy.isna().all()


def test_the_frame_has_what_method_and_optimizer_keep(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.cell("bnp", rows=epochs([1.0, 2.0]), method_state_bytes=24, optimizer_state_bytes=0)
    made.cell("bn", rows=epochs([1.0]))  # before it was recorded
    frame = made.read().frame().set_index("method")
    assert frame.loc["bnp", ["method_state_bytes", "optimizer_state_bytes"]].values.tolist() == [[24, 0]] * 2
    assert frame.loc["bn", ["method_state_bytes", "optimizer_state_bytes"]].isna().all()


@pytest.mark.regression
def test_trials_are_no_rows_of_the_frame_unless_they_are_asked_for(tmp_path: Path) -> None:
    """A mean over a method's rows was one of trials and finals, and a pivot by seed met each seed twice."""
    made = Made(tmp_path)
    for rate in (0.1, 0.5):
        tried = {"validation": 0.2, "optimizer": {"kind": "sgd", "lr": rate}}
        made.cell("bnp", 16, 1, epochs([1.0], [0.1]), role="trial", settings=tried, alone=True)
    for seed in (1, 2):
        chosen = {"optimizer": {"kind": "sgd", "lr": 0.5}}
        made.cell("bnp", 16, seed, epochs([1.0], [0.9]), settings=chosen, alone=True)
    made.cell("bnp", 16, 3, epochs([1.0], [0.2]), role="trial", in_suite=False, alone=True)
    results = made.read()
    frame = results.frame()
    assert frame.pivot(index="seed", columns="method", values="test_accuracy")["bnp"].to_dict() == {1: 0.9, 2: 0.9}
    assert not {"trial", "validation", "optimizer.lr"} & set(frame.columns)
    whole = results.frame(trials=True)
    assert {(row.seed, row.test_accuracy, row.trial) for row in whole.itertuples()} == {
        (1, 0.1, True), (1, 0.9, False), (2, 0.9, False), (3, 0.2, True),
    }  # fmt: skip
    assert len(whole) == 5
    assert whole.trial.dtype == bool
    assert "optimizer.lr" in whole
    trials = results.of_cells(results.cells.key[results.cells.role == "trial"])  # as of a run that was stopped
    assert (len(trials.frame()), len(trials.frame(trials=True))) == (0, 3)


@pytest.mark.regression
def test_whether_a_cell_is_a_trial_is_what_its_suite_says_now(tmp_path: Path) -> None:
    """A suite that selects no more asks for cells that were measured as trials."""
    made = Made(tmp_path)
    made.cell("bnp", rows=epochs([1.0], [0.5]), role="trial")
    made.document["cells"][0]["role"] = "final"
    assert made.read().frame().test_accuracy.tolist() == [0.5]


def test_results_print_themselves_in_ten_lines_at_most(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.cell("bnp", rows=epochs([1.0, 2.0]))
    made.cell("bn", status="diverged")
    text = repr(made.read())
    assert text.splitlines()[0] == "2 cells, 2 epochs, 1 suite"
    assert "1 ok, 1 diverged" in text or "1 diverged, 1 ok" in text
    for number in range(20):
        other = Made(tmp_path, f"suite{number}")
        other.cell("bnp", rows=epochs([1.0]))
        other.read()
    assert len(repr(read_results(tmp_path)).splitlines()) <= 10
