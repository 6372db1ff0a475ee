"""The JSON Schema of suites."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bnpbench.suite import Settings, json_schema
from bnpbench.suite.document import Document
from bnpbench.suite.loading import shipped_suites
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary


def test_the_schema_knows_every_key() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["properties"].keys() == Document.model_fields.keys()
    for table in (
        schema["properties"]["train"],
        schema["properties"]["sweep"],
        schema["$defs"]["Override"]["properties"]["set"],
    ):
        names = {name for name in table["properties"] if "." not in name}  # a sweep's may be in quotes
        assert names == SETTINGS.keys() == Settings.model_fields.keys() - {"plugins"}
        assert table["additionalProperties"] is False
    assert schema["$defs"]["Side"]["properties"].keys() == SETTINGS.keys() | {"at"}
    for name, hint in SETTINGS.items():
        if kinds := list(Vocabulary().kinds(hint)):
            assert schema["properties"]["train"]["properties"][name]["anyOf"][0] == {"enum": kinds}


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    referred = set(_references(schema))
    assert referred
    assert {reference.removeprefix("#/$defs/") for reference in referred} <= schema["$defs"].keys()


def test_the_schema_lets_a_part_of_a_table_stand() -> None:
    """As in ``set = { optimizer.lr = 0.5 }``, which every kind of optimizer could be the whole of."""
    schema = json_schema()
    value, along_an_axis = schema["$defs"]["Override"]["properties"]["set"]["properties"]["optimizer"]["anyOf"]
    assert along_an_axis == {"type": "array", "items": value, "minItems": 1}
    _, tables = value["anyOf"]
    names = ("Adam", "AdamW", "Kron", "Muon", "Sgd", "Shampoo", "Soap")
    assert {part["$ref"] for part in tables["anyOf"]} == {f"#/$defs/{name}Along" for name in names}
    assert "required" not in schema["$defs"]["Sgd"]
    assert "required" in schema["$defs"]["Claim"]


@pytest.mark.regression
@pytest.mark.parametrize("name", shipped_suites())
def test_every_shipped_suite_fits_the_schema(name: str) -> None:
    """Those with an axis in quotes, or with the published best value of a setting, did not."""
    assert faults(shipped_suites()[name].read_text()) == []


@pytest.mark.regression
@pytest.mark.parametrize(
    ("table", "fits"),
    [
        ("optimizer.lr = 0.5", True),
        ("optimizer.lr = [0.5, 1.0]", True),
        ("optimizer.lrr = 0.5", False),
        ('optimizer = { kind = "sgd", lr = [0.1, 1.0] }', True),
        ('optimizer = ["adam", { kind = "sgd", lr = 0.1 }]', True),
        ('optimizer = [{ kind = "sgd", lrr = 0.1 }]', False),
        ('optimizer.kind = ["adam", "sgd"]', True),
        ("optimizer = 0.5", False),
        ("schedule.warmup.start = [0.01, 0.1]", True),
        ("schedule.warmup.begin = 0.01", False),
        ("network.hidden = [100, 100]", True),
        ("network.hidden = [[100, 100]]", False),
        ("epochs = [3, 4]", True),
        ("epochs = [3, 0.5]", False),
        ("weight_decay = [1e-4, 1e-3]", True),
        ("epoch = 3", False),
    ],
)
def test_an_override_sets_what_the_axes_of_a_sweep_have(table: str, fits: bool) -> None:
    """Any table stood there, whatever was in it, and any list."""
    assert (faults(f"[[override]]\nwhen = {{}}\nset = {{ {table} }}") == []) == fits


@pytest.mark.regression
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("[sweep]\noptimizer.lr = [0.5, 1.0]", True),
        ("[sweep]\noptimizer.lr = 0.5", False),
        ("[sweep]\noptimizer.lrr = [0.5]", False),
        ("[sweep]\nschedule.warmup.start = [0.01]", True),
        ("[sweep]\nschedule.warmup.begin = [0.01]", False),
        ('[sweep]\nmethod = ["bn", "bnp"]\n"method.rho" = [0.5]', True),
        ('[sweep]\nmethod = ["bn", "bnp"]\n"method.rhoo" = [0.5]', False),
        ('[[override]]\nwhen = { method = ["bn", { rho = 0.5 }], optimizer.lr = [0.1] }\nset = { epochs = 3 }', True),
        ("[[override]]\nwhen = { optimizer.lrr = [0.1] }\nset = { epochs = 3 }", False),
    ],
)
def test_the_options_of_an_axis_and_of_a_pattern_are_known(text: str, fits: bool) -> None:
    assert (faults(text) == []) == fits


def faults(text: str) -> list[str]:
    schema = json.loads(json.dumps(json_schema()))
    return [error.message for error in Draft202012Validator(schema).iter_errors(tomllib.loads(text))]


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [value for key, value in part.items() if key == "$ref"]
        return own + [reference for value in part.values() for reference in _references(value)]
    return [reference for item in part for reference in _references(item)] if isinstance(part, list) else []
