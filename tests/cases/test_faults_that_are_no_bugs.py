"""Exit code 70, "a bug in bnpbench", for what the user could mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bnpbench import cli, load_suite
from bnpbench.errors import ResultsError
from bnpbench.execution.children import ask
from bnpbench.execution.listing import build
from bnpbench.execution.messages import Describe, Preflight
from bnpbench.execution.options import Options
from bnpbench.execution.preflight import preflight
from tests.command import SUITE, bnpbench, suite
from tests.support.made_results import Made, epochs

Errors = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process


def made(folder: Path) -> None:
    results = Made(folder / "results", "tiny")
    results.cell("bnp", rows=epochs([1.0, 1.0], [0.5, 0.5]))
    results.read()


@pytest.mark.parametrize("output", [".", "", "/", "folder"])
@pytest.mark.parametrize("command", [["report"], ["compare", "results", "results"]])
def test_a_folder_is_no_file_for_a_report(command: list[str], output: str, tmp_path: Path, capsys: Errors) -> None:
    made(tmp_path)
    (tmp_path / "folder").mkdir()
    assert cli.run([*command, "--output", output]) == 2
    assert "is a folder; name a file" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


def test_a_report_that_cannot_be_moved_into_place_leaves_nothing(
    tmp_path: Path, capsys: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    assert cli.run(["report", "--output", "a.md"]) == 2
    assert "--output a.md: cannot be written (Permission denied)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_an_unreadable_folder_is_not_compacted(tmp_path: Path, capsys: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert cli.run(["compact", str(tmp_path)]) == 2
    assert f"{tmp_path}: cannot be read (Permission denied)" in capsys.readouterr().err


def test_an_empty_folder_has_nothing_to_compact(tmp_path: Path, capsys: Errors) -> None:
    assert cli.run(["compact", str(tmp_path)]) == 4
    assert "no results in here" in capsys.readouterr().err


def test_a_file_is_no_folder_for_a_profile(tmp_path: Path, capsys: Errors) -> None:
    suite(tmp_path)
    (tmp_path / "file").touch()
    assert cli.run(["profile", "tiny.toml", "--only", "method=bnp", "--output", "file"]) == 2
    assert "--output file: no folder can be made here (File exists)" in capsys.readouterr().err


def test_a_process_that_cannot_write_its_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"file/below\.log: cannot be written"):
        ask(Describe(), log=tmp_path / "file" / "below.log")


def test_a_network_beyond_all_bounds_is_named(tmp_path: Path) -> None:
    loaded = load_suite(suite(tmp_path, SUITE.replace("hidden = [9, 8]", "hidden = [9223372036854775807]")))
    cells = loaded.cells(device="cpu", threads=1, only=["method=bnp"])
    found = preflight(Preflight(cells, None, True))
    assert {cost.uncounted is not None for cost in found.values()} == {True}
    built = build(Options(only=("method=bnp",)).selection(loaded), None)
    assert built.exit_code == 3
    assert "not built: bnp, 2 cells: RuntimeError: " in built.text()


@pytest.mark.parametrize("shard", ["²/3", "1/²", "1/" + "9" * 5000, "0/2", "1/2/3"])
def test_a_shard_that_is_no_number(shard: str, tmp_path: Path, capsys: Errors) -> None:
    suite(tmp_path)
    assert cli.run(["run", "tiny.toml", "--shard", shard]) == 2
    assert "give I/N" in capsys.readouterr().err


def test_a_terminal_of_another_encoding(tmp_path: Path) -> None:
    suite(tmp_path, SUITE.replace('"vanilla"', '{ kind = "vanilla", label = "β" }'))
    done = bnpbench("check", "tiny.toml", cwd=tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert r"\u03b2" in done.stdout


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"epochs": "2", "optimizer": "sgd"}, None])
def test_earlier_results_without_an_optimizer_or_a_time(
    settings: dict[str, Any] | None, tmp_path: Path, capsys: Errors
) -> None:
    (cell, *_) = load_suite(suite(tmp_path)).cells(device="cpu", threads=1)
    results = Made(tmp_path / "results", "tiny")
    known, seconds = settings or json.loads(cell.canonical), 1.0 if settings else None
    results.cell("bnp", rows=epochs([1.0, 1.0]), settings=known, wall_seconds=seconds)
    results.read()
    assert cli.run(["check", "tiny.toml", "--out", "results"]) == 0
    assert "time: unknown" in capsys.readouterr().out


def test_a_bug_says_how_to_see_more(capsys: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", faulty)
    assert cli.run(["report"]) == 70
    assert "`bnpbench --debug COMMAND ...` shows where" in capsys.readouterr().err
