"""Links from the page to the files it was made from."""

from __future__ import annotations

import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bnpbench.report.render.page import render_page
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


class Reader(HTMLParser):
    """Elements, in order, with their attributes; whether all are closed; what the tables hold."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.elements[-1][1].get("type") or "", data))
        elif data.strip():
            self.texts.append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def results(make: Callable[..., Made], label: str = "bnp") -> Results:
    made = make()
    keys = [
        made.cell("bnp", 16, seed, epochs([1.0, 1.5], [0.5, 0.6], train_loss=[1.0, 0.5]), label=label)
        for seed in (1, 2)
    ]
    made.cell("vanilla", 16, 1, epochs([0.5, 0.5], [0.4, 0.5], train_loss=[1.0, 0.8]))
    made.claim("test_accuracy", "value", keys, at_least=0.5, says=f"above a half {label}")
    return made.read()


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
