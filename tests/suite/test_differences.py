"""In which settings cells differ, and which of these tell them apart."""

from __future__ import annotations

from typing import Any

import pytest

from bnpbench.suite import differing, setting, telling, told

CELLS: list[dict[str, Any]] = [
    {"method": {"kind": "bn"}, "network": {"kind": "fc", "hidden": [9]}, "engine": "eager", "seed": 1},
    {"method": {"kind": "bnp"}, "network": {"kind": "fc", "hidden": [8, 8]}, "engine": "eager", "seed": 2},
]


def test_settings_that_vary_by_their_dotted_names() -> None:
    assert differing(CELLS, ("method",)) == {"network.hidden": [[9], [8, 8]], "seed": [1, 2]}
    assert differing(CELLS[:1], ()) == {}
    assert differing([{"a": {}}, {"a": {"b": 1}}, {}], ()) == {"a.b": [None, 1, None]}


def test_one_and_true_are_not_the_same() -> None:
    assert differing([{"a": 1}, {"a": True}], ()) == {"a": [1, True]}


def test_as_few_as_tell_apart_what_a_reader_expects_first() -> None:
    both = {"optimizer.lr": [0.1, 0.2], "network.hidden": [[9], [8]]}
    assert telling(["bn", "bn"], both) == ["network.hidden"]
    assert telling(["bn", "bn"], {"threads": [1, 2], "engine": ["eager", "compiled"]}) == ["engine"]
    assert telling(["bn", "bnp"], both) == []  # who they are tells it
    assert telling(["bn"] * 4, {"device": ["cpu", "cpu", "cuda", "cuda"], "precision": [1, 2, 1, 2]}) == [
        "device",
        "precision",
    ]


@pytest.mark.parametrize(("path", "value"), [("network.hidden", [9]), ("seed", 1), ("seed.x", None), ("none.x", None)])
def test_a_setting_by_its_dotted_name(path: str, value: Any) -> None:
    assert setting(CELLS[0], path) == value


def test_a_setting_as_text() -> None:
    assert told({"kind": "sgd", "lr": 0.1, "warmup": None}) == "{kind = sgd, lr = 0.1}"
    assert told({"kind": "glorot"}) == "glorot"
    assert told([True, None]) == "[true, none]"
    assert told([[32] * 8, [32] * 4, [1, 2, 3, 4, 5]]) == "[[32] * 8, [32, 32, 32, 32], [1, 2, 3, 4, 5]]"
