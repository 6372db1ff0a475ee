"""The how-to pages, followed: their files are written, their commands run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bnpbench import read_results
from bnpbench.report import figures, render, tables
from bnpbench.report.data import views
from tests.support.command import called
from tests.support.made_results import Made, epochs

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r"`([\w.]+\.(?:py|toml))`[^`]*:\n\n```\w+\n(.*?)```", re.DOTALL)


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by their names."""
    return dict(FILE.findall((PAGES / f"{page}.md").read_text()))


@pytest.mark.parametrize(
    ("page", "methods"),
    [
        ("optimizers", {"vanilla", "bnp", "adam", "bnp+adam"}),
        ("method", {"vanilla", "scaled", "scaled(pull=0.1)"}),
        ("preconditioner", {"vanilla", "powers", "powers(power=1.0)"}),
        ("network", {"vanilla", "bn", "bn-pre", "bnp"}),
        ("dataset", {"vanilla", "bnp"}),
        ("loss", {"vanilla", "bnp"}),
        ("metric", {"vanilla", "bnp"}),
    ],
)
def test_what_a_page_shows_runs(page: str, methods: set[str], tmp_path: Path) -> None:
    parts = files(page)
    assert len(parts) == (1 if page == "optimizers" else 2)
    for name, text in parts.items():
        (tmp_path / name).write_text(text)
    (command,) = re.findall(r"```sh\nbnpbench (.*)\n```", (PAGES / f"{page}.md").read_text())
    done = called(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = read_results(tmp_path / "results").cells
    assert set(cells.label) == methods
    assert set(cells.status) == {"ok"}


EDIT = re.compile(r"`(bnpbench/[\w/]+\.py)`, below `([^`]+)` and\s`([^`]+)`:\n\n```python\n(.*?)```", re.DOTALL)
RUN = "import sys; from bnpbench.cli import main; sys.exit(main())"
ASK = """
from bnpbench.report import verdicts
from bnpbench.results import read_results
results = read_results("results")
print(results.epochs["weight_norm"].gt(0).all(), *(verdict.outcome for verdict in verdicts(results)))
"""


def test_a_column_is_a_field_and_what_fills_it(tmp_path: Path) -> None:
    """In a copy of the package, edited as the page says."""
    shutil.copytree(Path(__file__).parents[2] / "bnpbench", tmp_path / "bnpbench")
    text = (PAGES / "column.md").read_text()
    edits = EDIT.findall(text)
    assert len(edits) == 2
    for path, where, line, added in edits:
        file = tmp_path / path
        place = re.compile(f"({re.escape(where)}.*?{re.escape(line)}[^\n]*\n)", re.DOTALL)
        edited, count = place.subn(lambda found, added=added: found[1] + added, file.read_text(), count=1)
        assert count == 1
        file.write_text(edited)
    for name, suite in files("column").items():
        (tmp_path / name).write_text(suite)
    (command,) = re.findall(r"```sh\nbnpbench (.*)\n```", text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for program, *words in ((RUN, *command.split()), (ASK,)):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "holds"]


def shown(page: str) -> dict[str, object]:
    """What the only file of a page defines."""
    ((name, text),) = files(page).items()
    found: dict[str, object] = {}
    exec(compile(text, name, "exec"), found)
    return found


def test_a_table_is_a_function_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SECTIONS", (*tables.SECTIONS, shown("table")["memory"]))
    made = Made(tmp_path)
    made.cell("vanilla", rows=epochs([1.0]))
    assert "Peak memory" not in render(made.read())
    for seed, mebibytes in ((1, 3), (2, 5)):
        made.cell("bnp", seed=seed, rows=epochs([1.0]), peak_memory_bytes=mebibytes * 2**20)
    text = render(made.read())
    assert "## Peak memory" in text
    assert "5.0 (3.0–5.0)" in text
    assert "– (not measured)" in text
    assert "peak memory,,bnp,16,peak_memory_mib,5.0,3.0,5.0,2," in render(made.read(), "csv")


def test_a_figure_is_a_function_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", (*figures.FIGURES, shown("figure")["rates"]))
    made = Made(tmp_path)
    made.cell("bnp", rows=epochs([1.0] * 2, learning_rate=[0.1, 0.01]))
    (figure,) = (figure for figure in figures.figures(views(made.read())) if figure.kind == "rates")
    assert [curve.y for panel in figure.panels for curve in panel.curves] == [(0.1, 0.01)]
    assert figure.name == "made-rates"
