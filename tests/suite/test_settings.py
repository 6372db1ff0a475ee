"""Settings: values looked up by kind, and the lists that are made from facts on fields."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import ValidationError

from bnpbench import MethodPlugin
from bnpbench.registry import built_in
from bnpbench.suite.settings import FACTS, SETTINGS, Settings, having
from tests.support.kinds import made

COMMON = {
    "dataset": "digits",
    "network": {"kind": "fc", "hidden": (4,)},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "batch_size": 6,
    "epochs": 3,
}


class Own(MethodPlugin):
    preconditioned = True
    kind: Literal["own"]


def test_a_kind_alone_an_instance_and_a_table_are_one_thing() -> None:
    ways = [Settings.model_validate({**COMMON, "method": way}) for way in ("bn", {"kind": "bn"}, made("method", "bn"))]
    assert ways[0] == ways[1] == ways[2]


def test_what_a_kind_means_is_the_registrys() -> None:
    with pytest.raises(ValidationError, match="unknown kind"):
        Settings.model_validate({**COMMON, "method": "own"})
    known = built_in().plus([Own])
    assert isinstance(Settings.model_validate({**COMMON, "method": "own"}, context=known).method, Own)


@pytest.mark.parametrize("value", [3, {"eps": 0.1}, {"kind": 3}, {"kind": "cnn"}, made("network", "cnn")])
def test_what_is_no_method_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({**COMMON, "method": value})


def test_lists_of_settings_are_those_that_they_were_written_as() -> None:
    assert set(having("shared")) == {"device", "devices", "precision", "threads", "deterministic", "epochs"}
    fits = {"dataset", "network", "method", "optimizer", "batch_size", "devices", "engine", "accumulate"}
    assert set(having("fits")) == fits
    assert set(having("data")) == {"dataset", "network", "memory_format", "augment", "train_limit", "validation"}
    assert having("axis") == ("method", "batch_size", "seed")
    assert set(having("repeats")) == {"seed", "epochs", "threads"}
    run = {"engine", "precision", "memory_format", "device", "threads"}
    assert (set(having("run")), set(having("place"))) == (run, {"dataset", "network", "batch_size", "seed"})
    assert {name: FACTS[name].auto for name in having("auto")} == {
        "device": ("cpu", "cuda"), "engine": ("eager", "graphed"), "threads": (),
    }  # fmt: skip
    assert sorted(filter(lambda name: FACTS[name].heading, FACTS), key=lambda name: -FACTS[name].heading) == [
        "dataset", "network", "engine", "precision", "memory_format", "device", "devices", "threads",
    ]  # fmt: skip
    assert list(FACTS) == list(SETTINGS)


def test_costs_do_not_depend_on_the_seed_the_length_or_the_place() -> None:
    one = Settings.model_validate({**COMMON, "method": "bnp", "seed": 1, "epochs": 3, "device": "cpu", "threads": 1})
    other = one.model_copy(update={"seed": 9, "epochs": 40, "device": "cuda", "threads": 4, "validation": 0.1})
    assert one.costing() == other.costing()
    assert one.costing() != one.model_copy(update={"batch_size": 7}).costing()
    assert one.only("fits") == other.only("fits")
