"""What may stand where: kinds, options, short forms, defaults, labels."""

from __future__ import annotations

from bnpbench import MethodPlugin
from bnpbench.registry import built_in
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary, frozen, label, named_without, plain
from tests.support.kinds import made

WORDS = Vocabulary()


def test_kinds_and_options_are_those_of_the_registry() -> None:
    assert list(WORDS.kinds(SETTINGS["optimizer"])) == ["adam", "adamw", "kron", "muon", "sgd", "shampoo", "soap"]
    assert WORDS.kinds(SETTINGS["batch_size"]) == {}
    assert {"kind", "lr", "momentum", "betas"} <= set(WORDS.options(SETTINGS["optimizer"]))
    assert "betas" not in WORDS.options(SETTINGS["optimizer"], "sgd")
    assert list(WORDS.options(SETTINGS["weight_decay"])) == ["value", "where"]
    assert list(WORDS.methods) == list(built_in().kinds(MethodPlugin))


def test_short_forms_are_written_out() -> None:
    assert WORDS.as_table(SETTINGS["method"], "bnp") == {"kind": "bnp"}
    assert WORDS.as_table(SETTINGS["weight_decay"], 0.1) == {"value": 0.1}
    assert WORDS.as_table(SETTINGS["batch_size"], 16) == 16


def test_defaults_are_filled_in() -> None:
    assert WORDS.filled(SETTINGS["optimizer"], {"kind": "sgd"}) == {"kind": "sgd", "momentum": 0.0, "nesterov": False}
    warm = WORDS.filled(SETTINGS["schedule"], {"kind": "constant", "warmup": {"kind": "linear", "start": 0.1}})
    assert warm["warmup"] == {"kind": "linear", "start": 0.1, "iterations": None, "epochs": None}


def test_a_label_names_what_is_not_default() -> None:
    assert label(made("method", {"kind": "bnp", "statistics": "batch", "scale": False})) == (
        "bnp(statistics=batch, scale=false)"
    )
    assert WORDS.method_label({"kind": "bn", "eps": 1e-3}) == "bn"
    assert WORDS.method_label({"kind": "bn", "label": "ours"}) == "ours"
    assert WORDS.method_label({"kind": "of a plugin"}) == "of a plugin"


def test_values_go_to_json_and_back() -> None:
    value = made("network", {"kind": "fc", "hidden": (3, 4)})
    assert plain(value) == {"kind": "fc", "hidden": [3, 4]}
    assert frozen(plain(value)) == {"kind": "fc", "hidden": (3, 4)}


def test_a_method_whose_option_is_looked_for_is_called_without_it() -> None:
    method = made("method", {"kind": "bnp", "rho": 0.5, "eps1": 0.1})
    assert named_without(method, {"rho"}).label == "bnp(eps1=0.1)"
    assert named_without(method, {"damping"}).label is None
    named = made("method", {"kind": "bnp", "rho": 0.5, "label": "mine"})
    assert named_without(named, {"rho"}) is named
