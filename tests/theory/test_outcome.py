"""Bounds, equalities and their verdicts."""

from __future__ import annotations

import math

from bnpbench.theory.outcome import Bound, Equality


def test_a_statement_that_gives_no_number_is_violated() -> None:
    bound, equality = Bound(), Equality()
    assert bound.verdict == equality.verdict == "violated"  # nothing tried
    bound.add(1.0, 2.0, "")
    equality.add_error(0.0, "")
    assert bound.verdict == equality.verdict == "holds"
    bound.add(math.nan, 2.0, "NaN")
    equality.add_error(math.nan, "NaN")
    assert bound.verdict == equality.verdict == "violated"
    assert "NaN" in bound.worst
    assert "NaN" in equality.worst
