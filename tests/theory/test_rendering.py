"""Outcomes as text."""

from __future__ import annotations

from bnpbench.theory import render
from bnpbench.theory.outcome import Finding, Outcome


def test_a_check_that_decides_nothing_is_information() -> None:
    outcome = Outcome(**vars(Finding("a", "b", None, "information", ("c",))), statement="x", claim="|y|")
    text = render([outcome])
    assert text.splitlines()[2].split(" | ")[-1] == "information |"
    assert "### x\n\n- c" in text
