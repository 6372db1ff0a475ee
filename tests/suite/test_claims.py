"""Claims and references: what is valid, which cells they pick, and how suite.json tells them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from bnpbench.suite import Suite
from bnpbench.suite.claims import side_pattern
from bnpbench.suite.document import AtEpoch, AtEpochs
from bnpbench.suite.matching import value_matches
from bnpbench.suite.vocabulary import Vocabulary
from tests.support.command import SUITE, suite
from tests.support.suite_texts import CLAIM, SMALL, changed

Load = Callable[[str], Suite]


def document(suite: Suite, **options: Any) -> dict[str, Any]:
    """What suite.json would hold, there and back."""
    cells = suite.cells(device="cpu", threads=1, **options)
    return json.loads(json.dumps(suite.document(cells, epochs=options.get("epochs")).document()))  # type: ignore[no-any-return]


def picked(suite: Suite) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """For each verdict of the first claim: where, and seed → (label, batch size) of both sides."""
    whole = document(suite)
    named = {c["key"]: (c["label"], c["settings"]["batch_size"]) for c in whole["cells"]}
    return [
        (v["where"], *({seed: named[key] for seed, key in v.get(side, {}).items()} for side in ("left", "right")))
        for v in whole["claims"][0]["combinations"]
    ]


def test_a_list_in_where_gives_a_verdict_each_with_paired_seeds(load: Load) -> None:
    assert picked(load(SMALL + CLAIM)) == [
        ({"batch_size": n}, dict.fromkeys("123", ("bnp", n)), dict.fromkeys("123", ("bn", n))) for n in (16, 256)
    ]


def test_lists_in_where_combine(load: Load) -> None:
    text = changed(CLAIM, "[16, 256]", "[16, 256], seed = [1, 3]")
    assert [where for where, _, _ in picked(load(SMALL + text))] == [
        {"batch_size": n, "seed": s} for n in (16, 256) for s in (1, 3)
    ]


def test_a_list_that_is_a_value_is_not_taken_apart(load: Load) -> None:
    text = changed(CLAIM, "batch_size = [16, 256]", "network.hidden = [100, 100], batch_size = 16")
    assert [where for where, _, _ in picked(load(SMALL + text))] == [
        {"network": {"hidden": [100, 100]}, "batch_size": 16}
    ]
    several = changed(SMALL, "seed = [1, 2, 3]", "network.hidden = [[10], [20, 30]]")
    text = changed(CLAIM, "batch_size = [16, 256]", "network.hidden = [[10], [20, 30]], batch_size = 16")
    assert [where["network"]["hidden"] for where, _, _ in picked(load(several + text))] == [[10], [20, 30]]


def test_a_side_may_have_its_own_batch_size_and_at(load: Load) -> None:
    text = changed(CLAIM, '{ method = "bnp" }', '{ method = "bnp", batch_size = 16, at = "best" }')
    text = changed(text, "[16, 256]", "256").replace("train_seconds", "test_loss")
    suite = load(SMALL + text)
    assert picked(suite) == [
        ({"batch_size": 256}, dict.fromkeys("123", ("bnp", 16)), dict.fromkeys("123", ("bn", 256)))
    ]
    claim = document(suite)["claims"][0]
    assert (claim["left"]["at"], claim["right"]["at"]) == ("best", "last")


def test_a_side_stands_over_where_within_a_method(load: Load) -> None:
    suite = load(
        changed(SMALL, '"bnp"', '"bnp", { kind = "bnp", statistics = "batch" }')
        + changed(CLAIM, "[16, 256]", '16, method.kind = "bnp"')
        .replace('{ method = "bnp" }', '{ method.statistics = "batch" }')
        .replace('{ method = "bn" }', '{ method = { statistics = "running" } }')
    )
    (_, left, right) = picked(suite)[0]
    assert set(left.values()) == {("bnp(statistics=batch)", 16)}
    assert set(right.values()) == {("bnp", 16)}


def test_right_may_be_absent(load: Load) -> None:
    text = (
        changed(CLAIM, 'right = { method = "bn" }\n', "").replace("ratio", "value").replace("train_seconds", "reached")
    )
    suite = load(SMALL + text + "target = 0.2\n")
    claim = document(suite)["claims"][0]
    assert "right" not in claim
    assert (claim["question"], claim["target"], claim["bounds"]) == ("value", 0.2, {"at_least": None, "at_most": 1.0})
    assert all("right" not in verdict for verdict in claim["combinations"])


@pytest.mark.parametrize(
    ("metric", "at", "expected"),
    [
        ("train_seconds", None, "all"),
        ("step_seconds_p90", None, "all"),
        ("energy_joules", None, "all"),
        ("test_accuracy", None, "last"),
        ("test_loss", '"best"', "best"),
        ("test_accuracy", '"area"', "area"),
        ("train_seconds", '"last"', "last"),
        ("test_accuracy", "{ epoch = 5 }", AtEpoch(epoch=5)),
        ("test_accuracy", "{ epochs = [1, 20] }", AtEpochs(epochs=(1, 20))),
    ],
)
def test_at(load: Load, metric: str, at: str | None, expected: Any) -> None:
    text = changed(CLAIM, "train_seconds", metric) + (f"at = {at}\n" if at else "")
    suite = load(SMALL + text)
    assert suite.claims[0].at_of("left") == suite.claims[0].at_of("right") == expected
    told = document(suite)["claims"][0]["left"]["at"]
    assert told == (expected if isinstance(expected, str) else json.loads(expected.model_dump_json()))


@pytest.mark.parametrize("question", ["value", "difference", "ratio"])
def test_each_question(load: Load, question: str) -> None:
    text = changed(CLAIM, "ratio = { at_most = 1.0 }", f"{question} = {{ at_least = -0.01, at_most = 0.01 }}")
    text = text.replace('right = { method = "bn" }\n', "") if question == "value" else text
    (claim,) = load(SMALL + text).claims
    assert claim.question == question
    assert (claim.bounds.at_least, claim.bounds.at_most) == (-0.01, 0.01)


def test_every_kind_of_metric_may_be_claimed(load: Load) -> None:
    for metric in ("flops_method_counted", "kappa_gain", "parameters"):
        assert load(SMALL + changed(CLAIM, "train_seconds", metric)).claims[0].metric == metric
    for metric in ("seconds_to", "epochs_to"):
        assert load(SMALL + changed(CLAIM, "train_seconds", metric) + "target = 0.9\n").claims[0].target == 0.9


def test_an_epoch_beyond_the_last_is_fine_where_an_interval_decides(load: Load) -> None:
    measure = '[measure]\ninterleave = ["method"]\ninterval = "2%"\n'
    assert load(SMALL + CLAIM + "at = { epoch = 21 }\n" + measure).claims[0].at == AtEpoch(epoch=21)


def test_where_a_value_is_chosen_claims_speak_of_the_chosen(load: Load) -> None:
    text = changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1") + "optimizer.lr = [0.1, 0.5]\n"
    text += '[select]\nover = "optimizer.lr"\n[[reference]]\ncell = { method = "bn" }\nmetric = "optimizer.lr"\n'
    suite = load(text + 'value = 0.5\nsource = "Table 2"\n' + CLAIM)
    assert suite.references[0].metric == "optimizer.lr"
    assert len(suite.claims) == 1


def test_a_method_whose_option_is_chosen_goes_by_its_label_without_it(load: Load) -> None:
    """Its cells do, and a claim about them was refused: no method was called so."""
    text = changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1") + '"method.eps1" = [1e-3, 1e-2]\n'
    claim = changed(CLAIM, 'left = { method = "bnp" }', 'left = { method.label = "bnp" }')
    suite = load(text + '[select]\nover = "method.eps1"\n' + claim)
    trials = suite.cells(device="cpu", threads=1)
    finals = suite.finals({cell.key: 0.5 for cell in trials}, device="cpu", threads=1)
    (found,) = suite.document((*trials, *finals)).claims
    keys = {cell.key for cell in finals if cell.label == "bnp"}
    assert {key for combination in found.combinations for key in combination.left.values()} == keys
    assert len(keys) == 2 * 3


# --- suite.json -------------------------------------------------------------------------------


def test_the_document_is_whole(load: Load) -> None:
    text = 'source = "Table 1"\ndescription = "small"\n' + SMALL + CLAIM + "[report]\ntargets = [0.5, 0.9]\n"
    text += (
        '[[reference]]\ncell = { method = "bn", batch_size = 16 }\nmetric = "train_seconds"\nvalue = 16\nsource = "x"\n'
    )
    suite = load(text + '[probe]\nlayer = "output"\n[measure]\ninterleave = ["method"]\n')
    whole = document(suite)
    assert list(whole) == [
        "schema_version",
        "name",
        "source",
        "description",
        "bnpbench",
        "measure",
        "targets",
        "references",
        "claims",
        "select",
        "probe",
        "shortened",
        "cells",
    ]
    assert (whole["name"], whole["source"], whole["description"]) == ("small", "Table 1", "small")
    assert whole["targets"] == [0.5, 0.9]
    assert whole["probe"] == {"layer": "output", "neuron": 0, "every": 1, "epochs": 1}
    assert whole["measure"]["interleave"] == ["method"]
    assert (whole["select"], whole["shortened"]) == (None, None)
    cells = suite.cells(device="cpu", threads=1)
    ids = {cell.key: block.id for block in suite.blocks(cells) for cell in block.cells}
    assert [(c["key"], c["label"], c["role"], c["block"]) for c in whole["cells"]] == [
        (cell.key, cell.label, "final", ids[cell.key]) for cell in cells
    ]
    settings = whole["cells"][-1]["settings"]
    assert settings["method"]["rho"] == 0.99
    assert "label" not in settings["method"]
    assert (settings["device"], settings["threads"], settings["seed"]) == ("cpu", 1, 3)
    (reference,) = whole["references"]
    assert (reference["value"], reference["metric"]) == (16.0, "train_seconds")
    assert reference["cells"] == [c.key for c in cells if c.label == "bn" and c.settings.batch_size == 16]


def test_the_document_says_that_it_is_shortened(load: Load) -> None:
    whole = document(load(SMALL + CLAIM), epochs=2)
    assert whole["shortened"] == {"epochs": 2}
    assert {cell["settings"]["epochs"] for cell in whole["cells"]} == {2}
    assert {cell["epochs"] for cell in whole["cells"]} == {
        cell.settings.epochs for cell in load(SMALL).cells(device="cpu", threads=1)
    }
    assert all(len(verdict["left"]) == 3 for verdict in whole["claims"][0]["combinations"])


ENGINES = SUITE.replace("seed = [1, 2]", 'seed = [1]\nengine = ["auto", "compiled"]')


AUTO_CLAIM = """
[[claim]]
says = "compiled costs less"
left = { engine = "compiled" }
right = { engine = ENGINE }
where = { method = "bnp" }
metric = "train_seconds"
ratio = { at_most = 1.0 }
"""


REFERENCE = """
[[reference]]
cell = { method = "bnp", WORDS }
metric = "train_seconds"
value = 1.0
source = "a paper"
"""


def told_of(path: Path) -> dict[str, Any]:
    loaded = load_suite(path)
    return loaded.document(loaded.cells(device="cpu", threads=3)).document()


@pytest.mark.regression
def test_what_auto_stands_for_is_named(tmp_path: Path) -> None:
    """A claim about ``engine = "auto"`` was never answered, and one about what that stands for was refused."""
    told = told_of(suite(tmp_path, ENGINES + AUTO_CLAIM.replace("ENGINE", '"eager"')))
    engines = {cell["key"]: cell["settings"]["engine"] for cell in told["cells"]}
    (combination,) = told["claims"][0]["combinations"]
    assert [engines[combination[side]["1"]] for side in ("left", "right")] == ["compiled", "eager"]
    with pytest.raises(SuiteError, match=r'claim.0..right.engine: "auto" is replaced .* "eager" or "graphed"'):
        load_suite(suite(tmp_path, ENGINES + AUTO_CLAIM.replace("ENGINE", '"auto"')))


@pytest.mark.regression
@pytest.mark.parametrize("words", ["threads = 3", 'device = "cpu"', 'device = "cpu", engine = ["eager", "graphed"]'])
def test_a_reference_names_it_too(words: str, tmp_path: Path) -> None:
    text = SUITE.replace("threads = 1\n", "").replace("seed = [1, 2]", "seed = [1]") + REFERENCE
    (reference,) = told_of(suite(tmp_path, text.replace("WORDS", words)))["references"]
    assert len(reference["cells"]) == 1
    with pytest.raises(SuiteError, match=r'cell.threads: "auto" is replaced .* a number'):
        load_suite(suite(tmp_path, text.replace("WORDS", 'threads = ["auto", 3]')))


@pytest.mark.regression
def test_what_auto_never_stands_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no cell has this engine"):
        load_suite(suite(tmp_path, SUITE + REFERENCE.replace("WORDS", 'engine = "compiled"')))


@pytest.mark.regression
def test_a_setting_that_is_given_comes_before_auto(tmp_path: Path) -> None:
    """``device = "cpu"`` is the cell that has it written, whatever "auto" becomes."""
    text = ENGINES.replace("seed = [1]", 'seed = [1]\ndevice = ["auto", "cpu"]')
    claim = AUTO_CLAIM.replace("ENGINE", '"eager"').replace('method = "bnp"', 'method = "bnp", device = "cpu"')
    assert len(told_of(suite(tmp_path, text + claim))["claims"][0]["combinations"]) == 1


WORDS = Vocabulary()


AVERAGED = {"kind": "bn", "label": "averaged", "inference": "averaged"}


@pytest.mark.regression
def test_a_word_on_a_side_is_a_label_or_a_kind() -> None:
    """A claim may name a method by its label, as ``when`` and ``--only`` may."""
    for word in ("averaged", "bn"):
        assert value_matches(AVERAGED, side_pattern({}, {"method": word}, WORDS)["method"])
    assert side_pattern({"method": "bn"}, {"method": "averaged"}, WORDS) == {"method": "averaged"}


@pytest.mark.regression
def test_a_table_on_a_side_adds_to_the_kind_of_where() -> None:
    side = {"method": {"inference": "averaged"}}
    assert side_pattern({"method": "bn"}, side, WORDS) == {"method": {"kind": "bn", "inference": "averaged"}}


def test_a_run_as_long_as_the_suite_or_longer_is_not_shortened(load: Load) -> None:
    suite = load(SMALL)
    (own,) = {cell.settings.epochs for cell in suite.cells(device="cpu", threads=1)}
    for epochs, told in ((own, {None}), (own + 1, {own})):
        whole = document(suite, epochs=epochs)
        assert whole["shortened"] is None
        assert {cell.get("epochs") for cell in whole["cells"]} == told
