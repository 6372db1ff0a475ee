"""Tables on terminals of any width."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from bnpbench.report.document import Chapter, Section, Table
from bnpbench.report.render.terminal import to_terminal

ROWS = (
    ("60", "bn", "1.42 [0.94, 2.16]", "undecided", "0.033 of the whole", "1,024 kB"),
    ("6", "四つ", "1.17 [0.91, 1.52]", "dearer", "– (not-applicable)", ""),
)
COLUMNS = ("N", "method", "time a step over vanilla", "cost", "gain", "memory")
TABLE = Table("Costs", COLUMNS, ROWS, ("What a reader must know.",), (), ("One is lacking.",), ("memory", "gain"))


def shown(width: int, table: Table = TABLE, *, colour: bool = False) -> str:
    section = Section("Heading", ("a line of several words that goes on and on",), (table,))
    return to_terminal([Chapter("", "", (section,))], width, colour)


@pytest.mark.parametrize("width", [200, 80, 60, 40, 24, 12])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(cell_len, shown(width).splitlines())) <= width


@pytest.mark.parametrize("width", [200, 80, 60, 40, 24])
def test_no_word_and_no_interval_is_broken(width: int) -> None:
    text = " ".join(shown(width).split())
    for words in ("[0.94, 2.16]", "undecided", "vanilla", "method", "dearer", "What", "several"):
        assert words in text


def test_columns_that_can_be_spared_go_first_and_are_named() -> None:
    natural = max(map(cell_len, shown(500).splitlines()))
    assert "memory" in shown(natural)
    narrow = shown(60)
    assert "Too wide for here: memory" in narrow
    assert "1,024" not in narrow
    assert "dearer" in narrow


def test_a_table_whose_words_are_too_wide_is_written_row_by_row() -> None:
    lines = shown(24).splitlines()
    assert "- N: 60" in lines
    assert "  cost: undecided" in lines
    assert "- N: 6" in lines


def test_reasons_stand_above_a_table_and_notes_below() -> None:
    lines = shown(100).splitlines()
    places = [lines.index(line) for line in ("Costs", "One is lacking.", "What a reader must know.")]
    (first,) = [number for number, line in enumerate(lines) if line.startswith("60")]
    assert places[0] < places[1] < first < places[2]


def test_colours_only_where_they_are_wanted_and_no_control_characters_of_a_file() -> None:
    assert "\x1b" not in shown(80)
    assert "\x1b" in shown(80, colour=True)
    hostile = Table("", ("a\x1b[2J",), (("b\x07\x1b]0;x",),))
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown(80, hostile, colour=True))
    assert "\x1b" not in text
    assert "\x07" not in text
