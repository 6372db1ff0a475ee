"""Markdown, CSV and JSON: whole, and harmless whatever stands in the files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable

import pytest

from bnpbench.report import render
from bnpbench.report.document import Chapter, Entry, Section, Table
from bnpbench.report.render.text import to_csv, to_json, to_markdown
from bnpbench.text import plain
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
FORMATS = {"markdown": "md", "csv": "csv", "json": "json"}


@pytest.mark.parametrize("format", FORMATS)
def test_names_break_no_format(make: Make, format: str) -> None:  # noqa: A002
    evil = "a|b\n# c \"d\" 'e' <script>\x1b[31m\u202e[x](javascript:1) `f`"
    made = make(name=evil)
    made.document["description"] = evil
    made.cell("bnp", rows=epochs([1.0]), label=evil)
    made.cell("bn", label="=cmd()", status="error", message=evil, log=evil)
    text = render(made.read(), format)
    assert "\x1b" not in text
    assert "\u202e" not in text
    if format == "json":
        assert json.loads(text)[0]["suite"].startswith("a|b # c \"d\" 'e' <script>")
    elif format == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {r["method"] for r in rows} == {plain(evil), "'=cmd()"}
        assert all(None not in r and None not in r.values() for r in rows)
    else:
        assert "<script>" not in text.replace("\\<", "")
        assert "](" not in text.replace("]\\(", "")
        tables = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        assert all(line.endswith("|") for line in tables)
        assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]


@pytest.mark.parametrize("name", ["1e5", "007", "123456789012", "0x10", "inf"])
def test_names_that_look_like_numbers_stay_names(make: Make, name: str) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6), label=name)
    text = render(made.read())
    assert f"| {name} " in text


def test_json_holds_no_nan_and_no_infinity() -> None:
    records = tuple(Entry("t", value=value) for value in (math.inf, -math.inf, math.nan, 1.0, None))
    chapter = Chapter("s", "e", (Section("x", tables=(Table("", ("a",), (("b",),), (), records),)),))
    values = [r["value"] for r in json.loads(to_json([chapter]))[0]["sections"][0]["tables"][0]["records"]]
    assert values == ["inf", "-inf", "nan", 1.0, None]
    assert [row["value"] for row in csv.DictReader(io.StringIO(to_csv([chapter])))] == ["inf", "-inf", "nan", "1.0", ""]
    assert to_markdown([chapter]) == "## x\n\n| a   |\n|:----|\n| b   |\n"
