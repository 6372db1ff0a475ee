"""Tables as LaTeX: whole, and no command whatever stands in the files."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnpbench.report import render
from bnpbench.report.document import Chapter, Section, Table
from bnpbench.report.render.latex import latex, to_latex
from tests.support.made_results import Made, epochs

SPECIAL = {
    "a_b": r"a\_b",
    "5 %": r"5 \%",
    "a & b": r"a \& b",
    "$x$": r"\$x\$",
    "#1": r"\#1",
    "{x}": r"\{x\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    r"\input": r"\textbackslash{}input",
    "a < b > c | d": r"a \textless{} b \textgreater{} c \textbar{} d",
    "[0, 1]": "{[}0, 1{]}",
    "a--b": "a-{}-b",
    "-0.5 [-1, +2]": r"\ensuremath{-}0.5 {[}\ensuremath{-}1, +2{]}",
    "2026-11-29": "2026-11-29",
    "bnp − bn": r"bnp \ensuremath{-} bn",
    "– (oom)": r"\textendash{} (oom)",
    "∞": r"\ensuremath{\infty}",
}
_COMMANDS = re.compile(
    r"\\(?:[_%&$#{}]|text(?:backslash|asciitilde|asciicircum|less|greater|bar|quotedbl|asciigrave|endash)\{\}"
    r"|ensuremath\{(?:-|\^2|\\[a-z]+)\})"
)


@pytest.mark.parametrize("text", SPECIAL)
def test_special_letters_are_set_as_they_stand(text: str) -> None:
    assert latex(text) == SPECIAL[text]


@given(st.text())
def test_nothing_of_a_text_is_a_command(text: str) -> None:
    left = _COMMANDS.sub("", latex(text)).replace("{[}", "").replace("{]}", "").replace("{}", "")
    assert not set(left) & set('\\{}$&#%_~^[]<>|"`\n\r')


@given(st.lists(st.text(), min_size=1, max_size=4), st.text(), st.text())
def test_braces_balance_and_rows_are_whole(cells: list[str], title: str, note: str) -> None:
    table = Table(title, tuple(cells), (tuple(cells), tuple(cells)), (note,))
    text = to_latex([Chapter("suite", "", (Section(title, (note,), (table,)),))])
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    bare = re.sub(r"\\[{}]", "", "\n".join(lines))
    assert bare.count("{") == bare.count("}")
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)&", row)) == len(cells) - 1 for row in rows)


def test_a_table_has_an_environment_a_caption_and_rules(make: Callable[..., Made]) -> None:
    made = make()
    for seed in (1, 2, 3):
        made.cell("vanilla", 16, seed, epochs([1.0] * 6, [0.5] * 6, steps=[10] * 6))
        made.cell("bnp", 16, seed, epochs([1.5] * 6, [0.6] * 6, steps=[10] * 6))
    results = made.read()
    text = render(results, "latex")
    tables = len(re.findall(r"^\|:-", render(results), re.MULTILINE))
    for command in (r"\begin{table}", r"\end{table}", r"\toprule", r"\midrule", r"\bottomrule", r"\caption{"):
        assert text.count(command) == tables, command
    (row,) = (line for line in text.splitlines() if line.startswith("16 & bnp & 1.50"))
    assert row.endswith(r" \\")
    assert r"\caption{made: Cost and gain. " in text
