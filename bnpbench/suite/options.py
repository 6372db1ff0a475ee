"""What may stand where in a table of settings: read off the vocabulary's types, nowhere written twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag

from bnpbench.suite.settings import Settings


@cache
def hints(model: type[BaseModel]) -> dict[str, Any]:
    """Option name → type, with its annotations, in the order of declaration."""
    annotations = get_type_hints(model, include_extras=True)
    return {name: annotations[name] for name in model.model_fields}


SETTINGS: dict[str, Any] = {name: hint for name, hint in hints(Settings).items() if name != "plugins"}
"""The settings that a suite may name, with their types; plugins are hashed, not written."""


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union and of the unions in it (None left out), else the type alone; still annotated."""
    bare = stripped(hint)
    if get_origin(bare) in (Union, UnionType):
        return tuple(inner for option in get_args(bare) if option is not NoneType for inner in alternatives(option))
    return (hint,)


def stripped(hint: Any) -> Any:
    """The type without its annotations."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def tags(hint: Any) -> tuple[str, ...]:
    """The names by which a discriminated union knows this member: its tag, or its kinds."""
    if get_origin(hint) is Annotated:
        named = tuple(note.tag for note in get_args(hint)[1:] if isinstance(note, Tag))
        if named:
            return named
    bare = stripped(hint)
    if isinstance(bare, type) and issubclass(bare, BaseModel) and "kind" in bare.model_fields:
        return get_args(stripped(hints(bare)["kind"]))
    return ()


def models(hint: Any) -> Iterator[type[BaseModel]]:
    """Every table that may stand here."""
    for option in alternatives(hint):
        bare = stripped(option)
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            yield bare


@cache
def kinds(hint: Any) -> dict[str, type[BaseModel]]:
    """Kind → model, empty where the setting has no kinds."""
    return {kind: model for model in models(hint) for kind in tags(model)}


@cache
def options(hint: Any, kind: str | None = None) -> dict[str, Any]:
    """Option name → type: of the given kind, or of every kind together where none or no such kind is given."""
    by_kind = kinds(hint)
    chosen = [by_kind[kind]] if kind in by_kind else list(models(hint))
    found: dict[str, Any] = {}
    for model in chosen:
        for name, option in hints(model).items():
            found[name] = Union[found[name], option] if name in found else option  # noqa: UP007
    if len(chosen) > 1 and by_kind:
        found["kind"] = Literal[tuple(by_kind)]
    return found


def kind_of(value: Any) -> str | None:
    """The kind that a table names, if it does."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def is_list(hint: Any) -> bool:
    """Whether the setting's own value is a list, so that a list is one value and not several."""
    return any(get_origin(stripped(option)) is tuple for option in alternatives(hint))


def as_table(hint: Any, value: Any) -> Any:
    """Writes out the short forms: ``"bnp"`` is ``{ kind = "bnp" }``, a weight decay ``{ value = … }``."""
    if isinstance(value, str) and kinds(hint):
        return {"kind": value}
    if isinstance(value, int | float) and not isinstance(value, bool) and "value" in options(hint):
        return {"value": value}
    return value


def filled(hint: Any, value: Any) -> Any:
    """``value`` with the defaults of its kind written out; it need not be valid."""
    if not isinstance(value, dict):
        return value
    by_kind = kinds(hint)
    known = list(models(hint)) if not by_kind else [by_kind[k] for k in [kind_of(value)] if k in by_kind]
    if len(known) != 1:
        return value
    whole = dict(value)
    for name, option in hints(known[0]).items():
        if name in whole:
            whole[name] = filled(option, whole[name])
        elif not known[0].model_fields[name].is_required():
            whole[name] = plain(known[0].model_fields[name].get_default())
    return whole


@cache
def default(name: str) -> Any:
    """The default of a setting as JSON data; None where it has none and must be given."""
    field = Settings.model_fields[name]
    return None if field.is_required() else plain(field.get_default())


def plain(value: Any) -> Any:
    """A validated value as JSON data: tables as dicts, tuples as lists."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def frozen(data: Any) -> Any:
    """JSON data with lists as tuples, as the strict vocabulary takes them.

    pydantic's own reading of JSON takes lists too, but not behind a validator that is a Python function.
    """
    if isinstance(data, dict):
        return {name: frozen(value) for name, value in data.items()}
    return tuple(frozen(value) for value in data) if isinstance(data, list) else data


def method_label(method: Any) -> str:
    """A method's label, or its kind and the options that are not default: ``bnp(statistics=batch)``.

    Args:
        method: JSON data of a method, possibly without its defaults.
    """
    if not isinstance(method, dict):
        return str(method)
    label, kind = method.get("label"), method.get("kind")
    if isinstance(label, str):
        return label
    model = kinds(SETTINGS["method"]).get(kind) if isinstance(kind, str) else None
    if model is None:
        return str(kind)
    own = {name: method[name] for name in model.model_fields if name in method and name not in ("kind", "label")}
    told = [f"{n}={_word(v)}" for n, v in own.items() if v != plain(model.model_fields[n].get_default())]
    return f"{kind}({', '.join(told)})" if told else str(kind)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
