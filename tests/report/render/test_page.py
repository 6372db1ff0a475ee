"""The page as text: whole, escaped, small, and needing nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.cli.report import Format, report
from bnpbench.errors import BnpbenchError
from bnpbench.report.document import Table
from bnpbench.report.render import page
from bnpbench.report.render.page import MOST_BYTES, body, render_page
from tests.support.made_results import Made
from tests.support.pages import Reader, results

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>{{ 7*7 }}\u202e\x1b[31m"


def test_page_is_well_formed_and_has_landmarks(make: Callable[..., Made]) -> None:
    text = render_page(results(make))
    found = Reader(text)
    assert not found.open
    assert text.startswith("<!DOCTYPE html>")
    assert found.all("html") == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(found.all(landmark)) == 1, landmark
    assert len(found.all("table")) == len(found.all("caption")) >= 3
    assert {header.get("scope") for header in found.all("th")} == {"col", "row"}
    names = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(names) == len(set(names))
    wanted = {link["href"] for link in found.all("a") if (link["href"] or "").startswith("#")}
    assert wanted <= {f"#{name}" for name in names}
    assert {"made on Made-up CPU", "Cost and gain", "Claims: 0 of 1 hold, 1 undecided"} <= {*found.texts}


def test_what_comes_from_files_stays_text(make: Callable[..., Made]) -> None:
    label = HOSTILE
    text = render_page(results(make, label))
    harmless = Reader(render_page(results(lambda: make("harmless"))))
    found = Reader(text)
    assert [name for name, _ in found.elements] == [name for name, _ in harmless.elements]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "49" not in {word for t in found.texts for word in t.split()}
    visible = label.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    assert visible in found.texts
    methods = next(json.loads(data) for kind, data in found.scripts if kind == "application/json" and "symbol" in data)
    assert visible in {method["label"] for method in methods}


def test_figures_hold_the_numbers(make: Callable[..., Made]) -> None:
    found = Reader(render_page(results(make)))
    data = [json.loads(data) for kind, data in found.scripts if kind == "application/json"]
    training = next(figure for figure in data if isinstance(figure, dict) and figure["kind"] == "training")
    curves = {(c["method"], c["quantity"]): c["y"] for panel in training["panels"] for c in panel["curves"]}
    methods = next(item for item in data if isinstance(item, list))
    assert [method["label"] for method in methods] == ["bnp", "vanilla"]
    assert curves[0, "test accuracy"] == [0.5, 0.6]
    assert curves[1, "training loss"] == [1, 0.8]


def test_it_begins_with_the_answer_and_its_picture(make: Callable[..., Made]) -> None:
    text = render_page(results(make))
    order = [
        text.index(words)
        for words in ('<section class="answer">', "<figure", "<table", "Claims: 0 of 1 hold, 1 undecided</h3>")
    ]
    assert order == sorted(order)
    found = Reader(text)
    first = next(json.loads(data) for kind, data in found.scripts if kind == "application/json")
    assert first["kind"] == "cost-and-gain"
    (cross,) = first["panels"][0]["crosses"]
    assert (cross["y"], cross["ys"]) == (0.1, None)  # of the one seed that both have


def test_details_are_folded_and_ids_of_environments_among_them(make: Callable[..., Made]) -> None:
    made = make()
    text = render_page(results(lambda: made))
    assert made.environment["id"] not in re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    folded = re.findall(r'<details class="fold">\n<summary><h4[^>]*>(.*?)</h4>', text)
    assert {"Time per epoch", "What ran", "Settings"} <= set(folded)
    assert not [title for title in folded if title.startswith("Claims")]


def test_the_menu_has_each_suite_with_its_parts(make: Callable[..., Made]) -> None:
    page = Reader(render_page(results(make)))
    links = [link["href"] for link in page.all("a")]
    assert links[1:5] == ["#part-1", "#part-1-answer", "#part-1-plain-1", "#part-1-figures"]


def test_nothing_comes_from_elsewhere(make: Callable[..., Made]) -> None:
    found = Reader(render_page(results(make)))
    for tag, attributes in found.elements:
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    (policy,) = (m["content"] or "" for m in found.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_licences_of_the_scripts_are_inside(make: Callable[..., Made]) -> None:
    text = " ".join(Reader(render_page(results(make))).texts)
    for words in (
        "plotly ",
        "itables ",
        "Plotly, Inc",
        "Marc Wouts",
        "SpryMedia",
        "jQuery",
        "Permission is hereby granted",
    ):
        assert words in text, words


def test_same_results_same_page_and_small(make: Callable[..., Made]) -> None:
    found = results(make)
    text = render_page(found)
    assert text == render_page(found)
    assert len(text.encode()) < MOST_BYTES / 2


def test_columns_of_numbers_sort_by_their_numbers() -> None:
    table = Table("", ("method", "seconds"), (("b", "1,234 [1, 2]"), ("A", "– (oom)"), ("c", "0.5 (n = 1)")))
    rows = body(table.texts)
    assert [row[1].order for row in rows] == [1234.0, 1e308, 0.5]
    assert [row[0].order for row in rows] == ["b", "a", "c"]


def test_a_page_too_large_is_refused(make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_BYTES", 1_000_000)
    with pytest.raises(BnpbenchError, match=r"2\.\d MB, more than 1"):
        render_page(results(make))


def test_suites_without_results_are_named(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16)
    text = render_page(made.read())
    assert "nothing of this suite has been measured" in text
    assert re.search(r"<h2 id=\"part-\d\">", text)


def test_command_writes_page_and_figures(
    make: Callable[..., Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results(make)
    target, figures = tmp_path / "out" / "page.html", tmp_path / "figures"
    assert report([tmp_path / "results"], format=Format.html, output=target, figures=figures) == 0
    links = [a["href"] or "" for a in Reader(target.read_text(encoding="utf-8")).all("a")]
    assert sum(link.endswith(".parquet") and (target.parent / link).is_file() for link in links) == 6
    assert {path.name for path in figures.iterdir()} >= {
        *(f"made-cost-and-gain.{extension}" for extension in ("svg", "pdf", "png", "txt")),
        "made-training.svg",
        "made-claims.svg",
    }
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{len(list(figures.iterdir()))} files of figures" in told.err
