"""The JSON Schema of suites."""

from __future__ import annotations

import json
from typing import Any

from bnpbench.suite import Settings, json_schema
from bnpbench.suite.document import Document
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
        assert table["properties"].keys() == SETTINGS.keys() == Settings.model_fields.keys() - {"plugins"}
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
    assert along_an_axis == {"type": ["array", "object"]}
    _, tables = value["anyOf"]
    names = ("Adam", "AdamW", "Kron", "Muon", "Sgd", "Shampoo", "Soap")
    assert {part["$ref"] for part in tables["anyOf"]} == {f"#/$defs/{name}" for name in names}
    assert "required" not in schema["$defs"]["Sgd"]
    assert "required" in schema["$defs"]["Claim"]


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [value for key, value in part.items() if key == "$ref"]
        return own + [reference for value in part.values() for reference in _references(value)]
    return [reference for item in part for reference in _references(item)] if isinstance(part, list) else []
