"""Suites that are checked and not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite
from bnpbench.text import duration
from tests.support.command import SUITE, bnpbench, called, suite
from tests.support.made_results import Made, epochs
from tests.support.plugins import PLUGIN


def earlier(folder: Path, seconds: dict[str, float], text: str = SUITE) -> None:
    """Results of the suite's cells, by method, which took so long."""
    made = Made(folder / "results", "tiny")
    for cell in load_suite(suite(folder, text)).cells(device="cpu", threads=1):
        told = json.loads(cell.canonical)
        seed, took = cell.settings.seed, seconds[cell.label]
        made.cell(cell.label, 10, seed, epochs([took / 2] * 2), settings=told, wall_seconds=took)
    made.read()


def test_the_time_is_estimated_from_earlier_results(tmp_path: Path) -> None:
    earlier(tmp_path, {"vanilla": 20.0, "bnp": 60.0})
    longer = called("check", "tiny.toml", "--epochs", "4", cwd=tmp_path).stdout
    assert f"\ntime: about {duration(2 * (2 * 20 + 2 * 60))}\n" in longer
    done = called("check", "tiny.toml", "--epochs", "3000", "--seeds", "1", "--only", "method=bnp", cwd=tmp_path)
    assert "tiny: 1 cell in 1 block, 0 claims" in done.stdout
    assert f"\ntime: about {duration(3000 * 30)}\n" in done.stdout
    assert "time: unknown" in called("check", "tiny.toml", "--out", "elsewhere", cwd=tmp_path).stdout


@pytest.mark.regression
@pytest.mark.parametrize("settings", [{"epochs": 2}, {"epochs": "2", "optimizer": "sgd"}, None])
def test_earlier_results_without_an_optimizer_or_a_time(settings: dict[str, Any] | None, tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    (cell, *_) = load_suite(suite(tmp_path)).cells(device="cpu", threads=1)
    results = Made(tmp_path / "results", "tiny")
    known, seconds = settings or json.loads(cell.canonical), 1.0 if settings else None
    results.cell("bnp", rows=epochs([1.0, 1.0]), settings=known, wall_seconds=seconds)
    results.read()
    done = called("check", "tiny.toml", "--out", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "time: unknown" in done.stdout


@pytest.mark.regression
def test_a_terminal_of_another_encoding(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    suite(tmp_path, SUITE.replace('"vanilla"', '{ kind = "vanilla", label = "β" }'))
    done = bnpbench("check", "tiny.toml", cwd=tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert r"\u03b2" in done.stdout


def test_the_schema_is_printed_for_editors(tmp_path: Path) -> None:
    done = called("check", "--json-schema", cwd=tmp_path)
    assert done.returncode == 0
    assert {"train", "sweep", "claim"} <= json.loads(done.stdout)["properties"].keys()


def test_what_building_finds_decides_the_code(tmp_path: Path) -> None:
    path = suite(tmp_path, SUITE.replace("hidden = [9, 8]", "hidden = [9223372036854775807]"))
    done = called("check", path, "--build", "--only", "method=bnp", cwd=tmp_path)
    assert done.returncode == 3
    assert "built: 0 of 2 cells" in done.stdout
    assert "not built: bnp, 2 cells: " in done.stdout


@pytest.mark.regression
def test_what_is_finished_or_does_not_apply_takes_no_time(tmp_path: Path) -> None:
    """It was estimated again, and a method without a meaning counted as one that nobody had measured."""
    earlier(tmp_path, {"vanilla": 20.0, "bnp": 60.0}, SUITE.replace("[1, 2]", "[2, 3]"))
    done = called("check", "tiny.toml", cwd=tmp_path).stdout
    assert done.startswith("tiny: 4 cells in 4 blocks, 0 claims; 4 finished in results\n")
    assert "\ntime: none, all cells are finished or not applicable\n" in done
    assert done.count("| finished") == 2
    one = SUITE.replace("batch_size = 10", "batch_size = 1").replace('"bnp"', '"bn"')
    alone = called("check", suite(tmp_path, one, "one.toml"), "--only", "method=bn", cwd=tmp_path).stdout
    assert "| not applicable" in alone
    assert "time: none" in alone
    assert "no like" not in alone


@pytest.mark.regression
def test_what_is_built_is_not_called_unchecked(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    text = 'plugins = ["mine.py"]\n' + SUITE.replace('"bnp"', '"rms"')
    suite(tmp_path, text)
    words = ["check", "tiny.toml", "--allow-plugins"]
    assert "(--build looks)" in called(*words, cwd=tmp_path).stdout
    assert "(--build looks)" not in called(*words, "--build", cwd=tmp_path).stdout
