"""Places of a table: what readers see and what programs get are made of the same number."""

from __future__ import annotations

from bnpbench.report.document import Place, Table
from bnpbench.statistics.intervals import Estimate

PLACE = Place("times", "engine = eager", "bnp", 16)


def test_an_interval_is_shown_with_the_digits_of_its_number() -> None:
    entry = PLACE.interval("ms", Estimate(1.23456, 9, 1.2, 1.3), [1.0, 2.0], "1 oom")
    assert entry.shown == "1.235 [1.200, 1.300]; 1 oom"
    assert (entry.value, entry.low, entry.high, entry.n, entry.text) == (1.23456, 1.2, 1.3, 9, "1 oom")
    assert (entry.table, entry.group, entry.method, entry.batch_size) == ("times", "engine = eager", "bnp", 16)


def test_too_few_values_have_their_range_and_the_reason() -> None:
    entry = PLACE.interval("ms", Estimate(15.0, 2, reason="n = 2 of 6"), [10.0, 20.0])
    assert (entry.shown, entry.low, entry.text) == ("15.00 (10.00–20.00, n = 2)", None, "n = 2 of 6")
    assert PLACE.interval("ms", Estimate(15.0, 1, reason="n = 1"), [15.0]).shown == "15.00 (n = 1)"


def test_seeds_have_their_range() -> None:
    entry = PLACE.over_seeds("share", 0.5, [0.4, 0.6], 2, "at 3")
    assert (entry.shown, entry.low, entry.high, entry.n) == ("0.50 (0.40–0.60) at 3", 0.4, 0.6, 2)
    assert PLACE.over_seeds("share", 0.5, [0.5], 2).shown == "0.50 (n = 1)"


def test_a_place_without_a_number_has_the_reason() -> None:
    entry = PLACE.empty("share", "crashed")
    assert (entry.shown, entry.value, entry.text) == ("– (crashed)", None, "crashed")


def test_numbers_of_a_table_are_those_of_its_rows_unless_others_are_named() -> None:
    one, other = PLACE.entry("a", 1, shown="1"), PLACE.entry("b", 2, shown="2")
    rows = (("bnp", one), ("bn", other))
    assert Table("", ("method", "x"), rows).records == (one, other)
    assert Table("", ("method", "x"), rows, entries=(other,)).records == (other,)
    assert Table("", ("method", "x"), rows, entries=()).records == ()
    assert Table("", ("method", "x"), rows).texts == (("bnp", "1"), ("bn", "2"))
