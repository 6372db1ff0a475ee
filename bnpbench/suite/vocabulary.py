"""What may stand where in a table of settings: read off the types of the settings, and a registry of kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag

from bnpbench.fields import hints, stripped
from bnpbench.methods.base import MethodPlugin
from bnpbench.registry import Registry, built_in, is_base
from bnpbench.suite.settings import SETTINGS, Settings


class Vocabulary:
    """The words of suites.

    Args:
        registry: the kinds that there are; by default those that ship with bnpbench.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or built_in()

    def kinds(self, hint: object) -> dict[str, type[BaseModel]]:
        """Kind → model, empty where what stands here has no kinds."""
        return {
            kind: model
            for bare in map(stripped, alternatives(hint))
            if is_base(bare)
            for kind, model in self.registry.kinds(bare).items()
        }

    def models(self, hint: object) -> Iterator[type[BaseModel]]:
        """Every table that may stand here."""
        for option in alternatives(hint):
            bare = stripped(option)
            if is_base(bare):
                yield from self.registry.kinds(bare).values()
            elif isinstance(bare, type) and issubclass(bare, BaseModel):
                yield bare

    def options(self, hint: object, kind: str | None = None) -> dict[str, Any]:
        """Option name → type: of the given kind, or of every kind together where none or no such kind is given."""
        by_kind = self.kinds(hint)
        chosen = [by_kind[kind]] if kind in by_kind else list(self.models(hint))
        found: dict[str, Any] = {}
        for model in chosen:
            for name, option in hints(model).items():
                found[name] = Union[found[name], option] if name in found else option  # noqa: UP007
        if len(chosen) > 1 and by_kind:
            found["kind"] = Literal[tuple(by_kind)]
        return found

    def as_table(self, hint: object, value: object) -> object:
        """Writes out the short forms: ``"bnp"`` is ``{ kind = "bnp" }``, a weight decay ``{ value = … }``."""
        if isinstance(value, list) and is_list(hint):
            return [self.as_table(element(hint), item) for item in value]
        if isinstance(value, str) and self.kinds(hint):
            return {"kind": value}
        if isinstance(value, int | float) and not isinstance(value, bool) and "value" in self.options(hint):
            return {"value": value}
        return value

    def filled(self, hint: object, value: object) -> object:
        """``value`` with the defaults of its kind written out; it need not be valid."""
        if isinstance(value, list) and is_list(hint):
            return [self.filled(element(hint), item) for item in value]
        if not isinstance(value, dict):
            return value
        by_kind = self.kinds(hint)
        known = [by_kind[k] for k in [kind_of(value)] if k in by_kind] if by_kind else list(self.models(hint))
        if len(known) != 1:
            return value
        whole = dict(value)
        for name, option in hints(known[0]).items():
            if name in whole:
                whole[name] = self.filled(option, whole[name])
            elif not known[0].model_fields[name].is_required():
                whole[name] = plain(known[0].model_fields[name].get_default())
        return whole

    def method_label(self, method: object) -> str:
        """A method's label, or its kind and the options that are not default: ``bnp(statistics=batch)``.

        Args:
            method: JSON data of a method, possibly without its defaults.
        """
        if not isinstance(method, dict):
            return str(method)
        label, kind = method.get("label"), method.get("kind")
        if isinstance(label, str):
            return label
        model = self.methods.get(kind) if isinstance(kind, str) else None
        return str(kind) if model is None else label_of(model, method)

    @cached_property
    def methods(self) -> dict[str, type[BaseModel]]:
        """Kind → class of the methods."""
        return self.kinds(SETTINGS["method"])


def label_of(model: type[BaseModel], method: dict[str, Any]) -> str:
    """What a method without a label is called, from its class and its options as JSON data."""
    own = {name: method[name] for name in model.model_fields if name in method and name not in ("kind", "label")}
    told = [f"{n}={_word(v)}" for n, v in own.items() if v != plain(model.model_fields[n].get_default())]
    return f"{method['kind']}({', '.join(told)})" if told else str(method["kind"])


def label(method: MethodPlugin) -> str:
    """How tables call a method: its label, or its kind and the options that are not default."""
    return method.label or label_of(type(method), method.model_dump(mode="json"))


def named_without(method: MethodPlugin, options: Collection[str]) -> MethodPlugin:
    """A method with the label that it has without some of its options, as where their best values are looked for."""
    if method.label or not any(option.split(".")[0] in type(method).model_fields for option in options):
        return method
    return method.model_copy(update={"label": label_of(type(method), without(method, options))})


def without(method: MethodPlugin, options: Collection[str]) -> dict[str, Any]:
    """A method's options as JSON data, without its label and some of them."""
    return method.model_dump(mode="json", exclude={"label", *(option.split(".")[0] for option in options)})


def alternatives(hint: object) -> tuple[Any, ...]:
    """The members of a union and of the unions in it (None left out), else the type alone; still annotated."""
    bare = stripped(hint)
    if get_origin(bare) in (Union, UnionType):
        return tuple(inner for option in get_args(bare) if option is not NoneType for inner in alternatives(option))
    return (hint,)


def tag_of(hint: object) -> str | None:
    """The name by which a discriminated union knows this member."""
    if get_origin(hint) is Annotated:
        return next((note.tag for note in get_args(hint)[1:] if isinstance(note, Tag)), None)
    return None


def kind_of(value: object) -> str | None:
    """The kind that a table names, if it does."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def is_list(hint: object) -> bool:
    """Whether the setting's own value is a list, so that a list is one value and not several."""
    return any(get_origin(stripped(option)) is tuple for option in alternatives(hint))


def element(hint: object) -> object:
    """The type of the elements of a setting that is a list, still annotated."""
    return next(get_args(bare)[0] for bare in map(stripped, alternatives(hint)) if get_origin(bare) is tuple)


def default(name: str) -> object:
    """The default of a setting as JSON data; None where it has none and must be given."""
    field = Settings.model_fields[name]
    return None if field.is_required() else plain(field.get_default())


def plain(value: object) -> object:
    """A validated value as JSON data: tables as dicts, tuples as lists."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def frozen(data: object) -> object:
    """JSON data with lists as tuples, as strict tables take them.

    pydantic's own reading of JSON takes lists too, but not behind a validator that is a Python function.
    """
    if isinstance(data, dict):
        return {name: frozen(value) for name, value in data.items()}
    return tuple(frozen(value) for value in data) if isinstance(data, list) else data


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
