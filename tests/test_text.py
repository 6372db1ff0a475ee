"""Numbers as text, and text made harmless."""

from __future__ import annotations

import math

import pytest

from bnpbench.text import csv_cell, markdown, significant, span


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
