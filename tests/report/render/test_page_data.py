"""Links from the page to the files it was made from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.report.render.page import render_page
from tests.support.made_results import Made
from tests.support.pages import Reader, results


def test_links_lead_to_the_files(make: Callable[..., Made], tmp_path: Path) -> None:
    found = results(make)
    for base in (tmp_path, tmp_path / "pages" / "deep", tmp_path / "results" / "made"):
        base.mkdir(parents=True, exist_ok=True)
        links = [a["href"] or "" for a in Reader(render_page(found, [tmp_path / "results"], base)).all("a")]
        files = [base / link for link in links if link.endswith(".parquet")]
        assert len(files) == 2 * 3  # cells and epochs of three cells
        assert all(path.is_file() for path in files)
        assert not any(os.path.isabs(link) for link in links)
    only = Reader(render_page(found, [tmp_path / "results" / "made"], tmp_path))
    assert sum((a["href"] or "").endswith(".parquet") for a in only.all("a")) == 6


def test_no_link_names_a_home_directory(
    make: Callable[..., Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results(make)
    home = tmp_path / "results"
    monkeypatch.setenv("HOME", str(home))
    outside = Reader(render_page(found, [home], tmp_path / "elsewhere"))
    assert not any((a["href"] or "").endswith(".parquet") for a in outside.all("a"))
    inside = Reader(render_page(found, [home], home / "pages"))
    assert any((a["href"] or "").endswith(".parquet") for a in inside.all("a"))
