"""The JSON Schema of a suite file, so that editors complete and check it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from bnpbench.suite.document import Document
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary, element, is_list


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a suite file.

    It knows every key and type. That a table is complete only together with another (an optimizer whose
    learning rate is an axis) it cannot know, so it demands no setting; ``bnpbench check`` does.
    """
    schema = Document.model_json_schema()
    words = Vocabulary()
    lists = {name for name, hint in SETTINGS.items() if is_list(hint)}
    known = {name: words.kinds(element(hint) if name in lists else hint) for name, hint in SETTINGS.items()}
    references, definitions = models_json_schema(
        [(model, "validation") for models in known.values() for model in models.values()]
    )
    fields: dict[str, Any] = {name: (hint, ...) for name, hint in SETTINGS.items() if not known[name]}
    others: dict[str, Any] = _open(create_model("Others", **fields).model_json_schema())
    schema["$defs"] |= _open(definitions["$defs"]) | others["$defs"]
    values = {
        name: _kinds(models, references, listed=name in lists)
        if models
        else _value(words.options(SETTINGS[name]), others["properties"][name])
        for name, models in known.items()
    }
    pattern = _table({name: {} for name in SETTINGS})
    parts = schema["$defs"]
    schema["properties"]["train"] = _table(values)
    schema["properties"]["sweep"] = _table({n: _axis(words.options(SETTINGS[n]), value) for n, value in values.items()})
    parts["Override"]["properties"] |= {"when": pattern, "set": _table({n: _along(v) for n, v in values.items()})}
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


def _kinds(models: Mapping[str, type[BaseModel]], references: Mapping[Any, Any], *, listed: bool) -> dict[str, Any]:
    """A kind by itself, or a table of one of the kinds; or a list of these."""
    tables = [references[model, "validation"] for model in models.values()]
    one = {"anyOf": [{"enum": list(models)}, {"anyOf": tables}]}
    return {"type": "array", "items": one} if listed else one


def _value(options: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A setting, in its short form too."""
    return {"anyOf": [{"type": "number"}, schema]} if options else schema


def _axis(options: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """A list of values, or for a setting with options a table of axes."""
    values = {"type": "array", "items": value, "minItems": 1}
    return {"anyOf": [values, {"type": "object"}]} if options else values


def _along(value: dict[str, Any]) -> dict[str, Any]:
    """A value, or a list of them along an axis, which may be one of an option's."""
    return {"anyOf": [value, {"type": ["array", "object"]}]}
