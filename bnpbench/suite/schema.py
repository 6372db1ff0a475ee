"""The JSON Schema of a suite file, so that editors complete and check it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from bnpbench.suite.document import Document
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary, element, is_list

ALONG = "Along"
"""Ends the names of tables whose options may be lists along an axis."""
_DEFINITIONS = "#/$defs/"


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
    tables = _open(definitions["$defs"]) | others["$defs"]
    schema["$defs"] |= tables | {f"{name}{ALONG}": _along_each(table) for name, table in tables.items()}
    values = {
        name: _kinds(models, references, listed=name in lists)
        if models
        else _value(words.options(SETTINGS[name]), others["properties"][name])
        for name, models in known.items()
    }
    parts = schema["$defs"]
    parts["Pattern"] = _table({name: _pattern(value, tables) for name, value in values.items()})
    pattern = {"$ref": f"{_DEFINITIONS}Pattern"}
    schema["properties"]["train"] = _table(values)
    quoted = {name: _axis(value, {}) for name, value in _dotted(values, tables) if "." in name}
    schema["properties"]["sweep"] = _table({n: _axis(value, tables) for n, value in values.items()} | quoted)
    parts["Override"]["properties"] |= {"when": pattern, "set": _table({n: _along(v) for n, v in values.items()})}
    parts["Reference"]["properties"] |= {"cell": pattern, "metric": _or_setting(parts["Reference"], values, tables)}
    parts["Claim"]["properties"]["where"] = pattern
    parts["Side"] = _table(parts["Pattern"]["properties"] | {"at": parts["Side"]["properties"]["at"]})
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


Tables = Mapping[str, Any]
"""The schema of each kind's options, by its name among the definitions."""


def _options(value: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """What may stand in a table that a value is, whatever its kind: each option with the values of all its kinds."""
    found: dict[str, list[Any]] = {}
    for table in _tables(value, tables):
        for name, option in table.get("properties", {}).items():
            known = found.setdefault(name, [])
            known += [] if option in known else [option]
    return {name: known[0] if len(known) == 1 else {"anyOf": known} for name, known in found.items()}


def _tables(value: dict[str, Any], tables: Tables) -> Iterator[dict[str, Any]]:
    name = value.get("$ref", "").removeprefix(_DEFINITIONS)
    if name in tables:
        yield tables[name]
    for alternative in value.get("anyOf", ()):
        yield from _tables(alternative, tables)


def _dotted(values: dict[str, Any], tables: Tables, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every setting and every option, by its dotted name."""
    for name, value in values.items():
        yield f"{path}{name}", value
        yield from _dotted(_options(value, tables), tables, f"{path}{name}.")


def _axis(value: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """A list of values, or for a setting with options a table of axes."""
    values = {"type": "array", "items": value, "minItems": 1}
    options = _options(value, tables)
    return {"anyOf": [values, _table({n: _axis(v, tables) for n, v in options.items()})]} if options else values


def _along(value: dict[str, Any]) -> dict[str, Any]:
    """A value, or a list of them along its axis; the same of each option in it. A list may be one value alone."""
    own = cast(dict[str, Any], _with_lists(value))
    if value.get("type") == "array" or any(one.get("type") == "array" for one in value.get("anyOf", ())):
        return own
    elements = {} if "const" in value else own  # a kind, which is another along its axis
    return {"anyOf": [own, {"type": "array", "items": elements, "minItems": 1}]}


def _along_each(table: dict[str, Any]) -> dict[str, Any]:
    options = {name: _along(option) for name, option in table.get("properties", {}).items()}
    return {**table, **({"properties": options} if options else {})}


def _with_lists(part: object) -> object:
    """With tables whose options may be lists along an axis, instead of the tables that it refers to."""
    if isinstance(part, list):
        return [_with_lists(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {key: f"{value}{ALONG}" if key == "$ref" else _with_lists(value) for key, value in part.items()}


def _pattern(value: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """Anything that a setting may be compared with; of a table the options are known."""
    options = _options(value, tables)
    if not options:
        return {}
    words = {"type": ["string", "number", "boolean", "array"]}
    return {"anyOf": [words, _table({name: _pattern(option, tables) for name, option in options.items()})]}


def _or_setting(reference: dict[str, Any], values: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """A metric, or a setting whose best value was published."""
    metric = reference["properties"]["metric"]
    return {**metric, "anyOf": [*metric["anyOf"], {"enum": [name for name, _ in _dotted(values, tables)]}]}
