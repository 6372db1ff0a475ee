"""Numbers as text, and text made harmless."""

from __future__ import annotations

import math

import pytest
from tabulate import tabulate

from bnpbench.text import csv_cell, fitted, folded, markdown, number_of, pipe_table, plural, significant, span


@pytest.mark.parametrize("start", ["=", "+", "@"])
def test_no_spreadsheet_takes_text_for_a_formula(start: str) -> None:
    assert csv_cell(f"{start}1+1") == f"'{start}1+1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (16.08, "16.08"),
        (1234.5, "1,234"),
        (0.00123456, "0.001235"),
        (-2.0, "-2.000"),
        (math.inf, "∞"),
        (math.nan, "nan"),
        (1e-9, "1.000e-09"),
    ],
)
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_small_words() -> None:
    assert span([3, 1, 2, 5]) == "1–3, 5"
    assert markdown("a\\|b") == "a\\\\\\|b"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["vanilla", "1.42 [0.94, 2.16]", ""], ["bnp ", " – (not-applicable)", "0.5"]],
        [["a name that is wider than its heading", "a\\|b", "1"], ["", "", ""]],
    ],
)
def test_a_table_of_markdown(rows: list[list[str]]) -> None:
    columns = ["method", "time over vanilla", "N"]
    assert pipe_table(columns, rows) == tabulate(rows, columns, tablefmt="pipe", disable_numparse=True)
    told = "| N   | method   |\n|:----|:---------|\n| 60  | bn       |"
    assert pipe_table(["N", "method"], [["60", "bn"]]) == told


def test_lines_are_folded_between_words_with_their_indent() -> None:
    text = "short\n  an indented line of quite some words\nan-unbroken-word-of-many-letters and more\n"
    found = fitted(text, 20)
    assert found == (
        "short\n  an indented line\n  of quite some\n  words\nan-unbroken-word-of-\nmany-letters and\nmore\n"
    )
    assert fitted(text, None) == text
    assert max(map(len, fitted("wide 漢字漢字漢字漢字 word", 10).splitlines())) <= 10


def test_a_word_goes_with_its_number() -> None:
    assert [number_of(1, "cell"), number_of(2, "cell")] == ["1 cell", "2 cells"]
    assert [plural(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]


def test_a_unit_stays_with_its_number() -> None:
    assert folded("it takes 1,024 kB", 12) == ["it takes", "1,024 kB"]
    assert folded("1.42 [0.94, 2.16]", 12) == ["1.42", "[0.94, 2.16]"]


def test_a_word_that_is_wider_than_the_terminal_is_broken_where_it_must_be() -> None:
    assert folded("abcdefgh ij", 3) == ["abc", "def", "gh", "ij"]
    assert folded("四つ目", 4) == ["四つ", "目"]
    assert folded("", 4) == [""]
