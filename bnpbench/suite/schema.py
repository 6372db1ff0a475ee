"""The JSON Schema of a suite file, so that editors complete and check it."""

from __future__ import annotations

from typing import Any

from bnpbench.suite.document import Document
from bnpbench.suite.options import SETTINGS, kinds, options
from bnpbench.suite.settings import Settings


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a suite file.

    It knows every key and type. That a table is complete only together with another (an optimizer whose
    learning rate is an axis) it cannot know, so it demands no setting; ``bnpbench check`` does.
    """
    schema = Document.model_json_schema()
    settings = _open(Settings.model_json_schema())
    schema["$defs"] |= settings["$defs"]
    values = {name: _value(name, settings["properties"][name]) for name in SETTINGS}
    pattern = _table({name: {} for name in SETTINGS})
    parts = schema["$defs"]
    schema["properties"]["train"] = _table(values)
    schema["properties"]["sweep"] = _table({name: _axis(name, value) for name, value in values.items()})
    parts["Override"]["properties"] |= {"when": pattern, "set": _table(values)}
    parts["Reference"]["properties"]["cell"] = pattern
    parts["Claim"]["properties"]["where"] = pattern
    parts["Side"] = _table(pattern["properties"] | {"at": parts["Side"]["properties"]["at"]})
    schema["required"] = []  # a suite without a name has its file's
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "bnpbench suite"}


def _open(part: Any) -> Any:
    """Demands no key and no kind, since a table may be a part of one: ``set = { optimizer.lr = 0.5 }``."""
    if isinstance(part, list):
        return [_open(item) for item in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _open(value) for key, value in part.items() if key not in ("required", "discriminator")}
    return {("anyOf" if key == "oneOf" else key): value for key, value in kept.items()}


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A setting, in its short form too."""
    schema = {key: value for key, value in schema.items() if key != "default"}
    if kinds(SETTINGS[name]):
        return {"anyOf": [{"enum": list(kinds(SETTINGS[name]))}, schema]}
    return {"anyOf": [{"type": "number"}, schema]} if options(SETTINGS[name]) else schema


def _axis(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """A list of values, or for a setting with options a table of axes."""
    values = {"type": "array", "items": value, "minItems": 1}
    return {"anyOf": [values, {"type": "object"}]} if options(SETTINGS[name]) else values
