"""The how-to pages, followed: their files are written, their commands run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bnpbench import read_results
from tests.command import bnpbench

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r"`([\w.]+\.(?:py|toml))`[^`]*:\n\n```\w+\n(.*?)```", re.DOTALL)


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by their names."""
    return dict(FILE.findall((PAGES / f"{page}.md").read_text()))


@pytest.mark.parametrize(
    ("page", "methods"),
    [
        ("method", {"vanilla", "scaled", "scaled(pull=0.1)"}),
        ("network", {"vanilla", "bn", "bn-pre", "bnp"}),
        ("dataset", {"vanilla", "bnp"}),
    ],
)
def test_what_a_page_shows_runs(page: str, methods: set[str], tmp_path: Path) -> None:
    shown = files(page)
    assert len(shown) == 2
    for name, text in shown.items():
        (tmp_path / name).write_text(text)
    (command,) = re.findall(r"```sh\nbnpbench (.*)\n```", (PAGES / f"{page}.md").read_text())
    done = bnpbench(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = read_results(tmp_path / "results").cells
    assert set(cells.label) == methods
    assert set(cells.status) == {"ok"}
