"""A claim may name a method by its label, as ``when`` and ``--only`` may."""

from __future__ import annotations

from bnpbench.suite.claims import side_pattern
from bnpbench.suite.matching import value_matches
from bnpbench.suite.vocabulary import Vocabulary

WORDS = Vocabulary()

AVERAGED = {"kind": "bn", "label": "averaged", "inference": "averaged"}


def test_a_word_on_a_side_is_a_label_or_a_kind() -> None:
    for word in ("averaged", "bn"):
        assert value_matches(AVERAGED, side_pattern({}, {"method": word}, WORDS)["method"])
    assert side_pattern({"method": "bn"}, {"method": "averaged"}, WORDS) == {"method": "averaged"}


def test_a_table_on_a_side_adds_to_the_kind_of_where() -> None:
    side = {"method": {"inference": "averaged"}}
    assert side_pattern({"method": "bn"}, side, WORDS) == {"method": {"kind": "bn", "inference": "averaged"}}
