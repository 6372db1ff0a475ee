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


def earlier(folder: Path, seconds: dict[str, float]) -> None:
    """Results of the suite's cells, by method, which took so long."""
    made = Made(folder / "results", "tiny")
    for cell in load_suite(suite(folder)).cells(device="cpu", threads=1):
        told = json.loads(cell.canonical)
        seed, took = cell.settings.seed, seconds[cell.label]
        made.cell(cell.label, 10, seed, epochs([took / 2] * 2), settings=told, wall_seconds=took)
    made.read()


def test_the_time_is_estimated_from_earlier_results(tmp_path: Path) -> None:
    earlier(tmp_path, {"vanilla": 20.0, "bnp": 60.0})
    assert f"\ntime: about {duration(2 * 20 + 2 * 60)}\n" in called("check", "tiny.toml", cwd=tmp_path).stdout
    done = called("check", "tiny.toml", "--epochs", "3000", "--seeds", "1", "--only", "method=bnp", cwd=tmp_path)
    assert "tiny: 1 cells in 1 blocks" in done.stdout
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
