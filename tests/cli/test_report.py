"""Reports from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import called
from tests.support.made_results import Made, epochs


@pytest.fixture
def made(tmp_path: Path) -> Made:
    results = Made(tmp_path / "results", "tiny")
    keys = [results.cell("bnp", 16, seed, epochs([1.0] * 6, [0.5 + seed / 1000] * 6)) for seed in (1, 2, 3)]
    results.claim("test_accuracy", "value", keys, at_least=0.4, says="it is good")
    return results


def test_nothing_there(tmp_path: Path) -> None:
    missing = called("report", "nowhere", cwd=tmp_path)
    assert missing.returncode == 2
    assert "nowhere" in missing.stderr
    (tmp_path / "empty").mkdir()
    assert called("report", "empty", cwd=tmp_path).returncode == 4


@pytest.mark.parametrize("format", ["markdown", "csv", "json", "html"])
def test_every_format_goes_where_it_is_asked_to(format: str, made: Made, tmp_path: Path) -> None:  # noqa: A002
    made.read()
    shown = called("report", "--format", format, cwd=tmp_path)
    written = called("report", "--format", format, "--output", "report.txt", cwd=tmp_path)
    assert (shown.returncode, written.returncode, written.stdout) == (0, 0, "")
    assert (tmp_path / "report.txt").read_text() == shown.stdout
    if format == "json":
        assert json.loads(shown.stdout)
    assert "it is good" in shown.stdout


@pytest.mark.parametrize(("least", "code"), [(0.4, 0), (0.6, 1), (None, 4)])
def test_a_claim_decides_the_code_where_it_is_asked_to(
    least: float | None, code: int, made: Made, tmp_path: Path
) -> None:
    without = made.cell("bn")  # in the suite, and never measured
    keys = [cell["key"] for cell in made.document["cells"]]
    made.claim("test_accuracy", "value", [without] if least is None else keys[:3], at_least=least or 0.4)
    made.read()
    assert called("report", cwd=tmp_path).returncode == 0
    assert called("report", "--fail-on-claims", cwd=tmp_path).returncode == code


def test_figures_are_counted(made: Made, tmp_path: Path) -> None:
    made.read()
    done = called("report", "--figures", "drawn", cwd=tmp_path)
    drawn = list((tmp_path / "drawn").iterdir())
    assert {path.suffix for path in drawn} == {".svg", ".png", ".pdf", ".txt"}
    assert f"{len(drawn)} files of figures in drawn" in done.stderr


def test_no_figures_are_said(tmp_path: Path) -> None:
    results = Made(tmp_path / "results", "tiny")
    results.cell("bn", 1, status="not-applicable", message="a single row")
    results.read()
    done = called("report", "--figures", "drawn", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "no figures: nothing in here can be drawn\n"


@pytest.mark.regression
def test_claims_decide_the_code_whatever_is_shown(made: Made, tmp_path: Path) -> None:
    """Those about cells that ``--only`` leaves out were dropped, and the code was 0 where a run gives 4."""
    made.claim("test_accuracy", "value", [made.cell("bn")], at_least=0.4)
    made.read()
    assert called("report", "--only", "method=bnp", "--fail-on-claims", cwd=tmp_path).returncode == 4


def test_figures_of_times_that_are_not_comparable_are_drawn_where_all_are(tmp_path: Path) -> None:
    results = Made(tmp_path / "results", "tiny")
    for method, factor in (("vanilla", 1.0), ("bnp", 1.2)):
        for seed in (1, 2):
            rows = epochs([factor, factor * 1.01], [0.5, 0.6 + seed / 100], steps=[10] * 2, train_loss=[2.0, 1.0])
            results.cell(method, 16, seed, rows, jobs=2, test_examples=100)
    results.read()
    done = called("report", "--figures", "figures", cwd=tmp_path)
    assert "no figures of these times, which --all draws: tiny: seconds are not comparable" in done.stderr
    assert not list((tmp_path / "figures").glob("*cost-and-gain*"))
    assert called("report", "--figures", "figures", "--all", cwd=tmp_path).returncode == 0
    assert list((tmp_path / "figures").glob("*cost-and-gain*"))
