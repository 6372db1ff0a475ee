"""Patterns: what contains what, and columns against a look at every cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnpbench.suite.matching import Column, Table, combinations, number_of_combinations, only_pattern, value_matches
from bnpbench.suite.vocabulary import Vocabulary

WORDS = Vocabulary()

BNP = {"kind": "bnp", "rho": 0.99, "statistics": "running", "scale": True, "label": "ours"}
DECAY = {"value": 1e-4, "where": "l2"}


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (16, 16, True),
        (16, 16.0, True),
        (16, 17, False),
        (16, "16", False),
        (1, True, False),
        (0, False, False),
        (True, 1, False),
        (True, True, True),
        (16, [1, 16], True),
        (16, [1, 2], False),
        (16, [], False),
        (16, [[16]], False),
        (16, {"value": 16}, False),
        (None, None, True),
        (None, 0, False),
        ("cpu", "cpu", True),
        ("cpu", ["cuda", "cpu"], True),
        ([100, 100], [100, 100], True),
        ([100, 100], [100], False),
        ([100, 100], [100, 50], False),
        ([100, 100], 100, False),
        ([100, 100], [[1], [100, 100]], True),
        ([100, 100], [[1], [2]], False),
        ([100, 100], [[100], [100]], False),
        ([1, 1], [True, True], False),
        ([], [], True),
        ([], [[]], True),
        (BNP, "bnp", True),
        (BNP, "ours", True),
        (BNP, "bn", False),
        (BNP, ["bn", "ours"], True),
        (BNP, ["bn", {"rho": 0.99}], True),
        (BNP, {}, True),
        (BNP, {"kind": "bnp"}, True),
        (BNP, {"kind": "bnp", "statistics": "running"}, True),
        (BNP, {"kind": "bnp", "statistics": "batch"}, False),
        (BNP, {"statistics": ["batch", "running"], "rho": 0.99}, True),
        (BNP, {"groups": 4}, False),
        (BNP, {"label": "ours"}, True),
        (BNP, {"scale": 1}, False),
        (BNP, 3, False),
        (DECAY, 1e-4, True),
        (DECAY, [0, 1e-4], True),
        (DECAY, 0, False),
        (DECAY, "l2", False),
        (DECAY, {"where": "l2"}, True),
        ({"kind": "steps", "epochs": [1, 2], "warmup": {"start": 0.1}}, {"epochs": [1, 2]}, True),
        ({"kind": "steps", "epochs": [1, 2], "warmup": {"start": 0.1}}, {"warmup": {"start": 0.1}}, True),
        ({"kind": "steps", "epochs": [1, 2], "warmup": None}, {"warmup": {"start": 0.1}}, False),
    ],
)
def test_whether_a_value_contains_what_is_wanted(value: Any, wanted: Any, expected: bool) -> None:
    assert value_matches(value, wanted) is expected


LEAVES = st.one_of(st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, 1.5]), st.sampled_from(["a", "b"]))
KEYS = st.sampled_from(["kind", "value", "x"])
VALUES = (
    LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(KEYS, LEAVES | st.lists(LEAVES, max_size=2), max_size=2)
)
WANTED = LEAVES | st.lists(VALUES, max_size=2) | st.dictionaries(KEYS, VALUES, max_size=2)


@given(st.lists(VALUES, min_size=1, max_size=6), WANTED)
def test_a_column_matches_as_its_values_do(values: list[Any], wanted: Any) -> None:
    column = Column(values, np.arange(len(values)))
    assert column.matches(wanted).tolist() == [value_matches(value, wanted) for value in values]


@given(st.lists(VALUES, min_size=1, max_size=6), st.lists(VALUES, min_size=1, max_size=6), st.data())
def test_a_changed_column_matches_as_its_new_values_do(values: list[Any], others: list[Any], data: Any) -> None:
    column = Column(values, np.arange(len(values)))
    mask = np.array([data.draw(st.booleans()) for _ in values])
    new = data.draw(st.sampled_from(others))
    column.change(mask, lambda value: new if value == values[0] else value)
    now = [new if picked and value == values[0] else value for value, picked in zip(values, mask, strict=True)]
    wanted = data.draw(WANTED)
    assert column.matches(wanted).tolist() == [value_matches(value, wanted) for value in now]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"])), min_size=1, max_size=9), st.data())
def test_the_keys_of_a_pattern_all_count(cells: list[tuple[int, str]], data: Any) -> None:
    places = np.arange(len(cells))
    table = Table(len(cells), lambda name: Column([c[name == "device"] for c in cells], places), WORDS)
    wanted = data.draw(st.fixed_dictionaries({}, optional={"seed": st.lists(st.integers(0, 3)), "device": LEAVES}))
    expected = [all(value_matches(cell[name == "device"], value) for name, value in wanted.items()) for cell in cells]
    assert table.matching(wanted).tolist() == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, [{}]),
        ({"batch_size": 16}, [{"batch_size": 16}]),
        ({"batch_size": [16, 60], "seed": [1, 2]}, [{"batch_size": b, "seed": s} for b in (16, 60) for s in (1, 2)]),
        ({"method": ["bn", {"kind": "bnp"}]}, [{"method": "bn"}, {"method": {"kind": "bnp"}}]),
        (
            {"method": {"kind": "bnp", "statistics": ["batch", "running"]}},
            [{"method": {"kind": "bnp", "statistics": s}} for s in ("batch", "running")],
        ),
        ({"network": {"hidden": [10, 20]}}, [{"network": {"hidden": [10, 20]}}]),
        ({"network": {"hidden": [[10], [20]]}}, [{"network": {"hidden": [10]}}, {"network": {"hidden": [20]}}]),
        ({"batch_size": []}, []),
    ],
)
def test_combinations(where: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert combinations(where, WORDS) == expected
    assert number_of_combinations(where, WORDS) == len(expected)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("method=bn", {"method": ["bn"]}),
        ("method = bn , bnp", {"method": ["bn", "bnp"]}),
        ("batch_size=16,60", {"batch_size": [16, 60]}),
        ("optimizer.lr=0.1,1e-3", {"optimizer": {"lr": [0.1, 1e-3]}}),
        ("deterministic=true", {"deterministic": [True]}),
        ("network.hidden=[100,100],[20]", {"network": {"hidden": [[100, 100], [20]]}}),
        ('method={kind="bnp",rho=0.9},bn', {"method": [{"kind": "bnp", "rho": 0.9}, "bn"]}),
        ("method=bnp(rho=0.9, scale=false),bn", {"method": ["bnp(rho=0.9, scale=false)", "bn"]}),
        ('method="a,b",c', {"method": ["a,b", "c"]}),
        ("method=bn-pre,4things,bnp+gn", {"method": ["bn-pre", "4things", "bnp+gn"]}),
        ("method=a=b", {"method": ["a=b"]}),
    ],
)
def test_the_pattern_of_an_only(text: str, pattern: dict[str, Any]) -> None:
    assert only_pattern(text, WORDS) == pattern


@pytest.mark.regression
def test_a_number_is_not_matched_by_a_list_in_a_list() -> None:
    """A pattern's list of lists holds alternatives for a setting that is a list; a number is none of them."""
    column = Column([16, 32], np.arange(2))
    assert column.matches([[16]]).tolist() == [value_matches(16, [[16]]), value_matches(32, [[16]])] == [False, False]
    assert column.matches([16]).tolist() == [True, False]
