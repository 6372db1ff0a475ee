"""A pattern's list of lists holds alternatives for a setting that is a list; a number is none of them."""

from __future__ import annotations

import numpy as np

from bnpbench.suite.matching import Column, value_matches


def test_a_number_is_not_matched_by_a_list_in_a_list() -> None:
    column = Column([16, 32], np.arange(2))
    assert column.matches([[16]]).tolist() == [value_matches(16, [[16]]), value_matches(32, [[16]])] == [False, False]
    assert column.matches([16]).tolist() == [True, False]
