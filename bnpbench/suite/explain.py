"""pydantic's errors as one sentence: what is wrong, what was expected, the closest valid name."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bnpbench.fields import hints, stripped
from bnpbench.networks.imported import TARGET
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary, alternatives, is_list, kind_of, tag_of

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}
_LIMITS = {
    "greater_than": ("gt", "must be above {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be below {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "multiple_of": ("multiple_of", "must be a multiple of {}"),
    "too_short": ("min_length", "must have {} or more elements"),
    "too_long": ("max_length", "must have {} elements or fewer"),
    "string_too_short": ("min_length", "must have {} or more characters"),
    "string_too_long": ("max_length", "must have {} characters or fewer"),
}


@dataclass(frozen=True)
class Fault:
    """What is wrong at a path within the validated data."""

    path: tuple[str | int, ...]
    message: str
    closest: str | None = None


def explain(
    error: ValidationError, hint: object, data: object, words: Vocabulary, *, partial: bool = False
) -> Fault | None:
    """The fault to tell of first: misspelt names before anything they may have caused.

    Args:
        error: what pydantic found in ``data``.
        hint: the type that ``data`` was validated against.
        words: what may stand in it.
        partial: the data is completed later, so that missing keys and rules between keys do not count yet;
            None is returned where there is nothing else.
    """
    found = error.errors(include_url=False)
    if partial:
        found = [e for e in found if e["type"] not in ("missing", "value_error", "kind_missing")]
    if not found:
        return None
    first = min(found, key=lambda e: e["type"] != "extra_forbidden")
    path = _path(first, data)
    rivals = [e for e in found if _path(e, data) == path and e["type"] != "extra_forbidden"]
    types = _Types(hint, data, words)
    if len(rivals) > 1 and first in rivals:  # each member of a union had its say
        return Fault(path, _expected_one_of(rivals, types), _closest_of(rivals))
    return _fault(first, path, types)


def closest(name: object, valid: Iterable[str]) -> str | None:
    """The valid name nearest to a misspelt one, if any is near; by which case it is written decides nothing."""
    lowered = {word.lower(): word for word in valid}
    near = difflib.get_close_matches(str(name)[:100].lower(), lowered, n=1, cutoff=0.5)
    return lowered[near[0]] if near else None


def shown(value: object) -> str:
    """A value in a message, as TOML writes it, shortened; of a table or list only the name."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def listed(words: Iterable[Any]) -> str:
    """The first dozen words, separated by commas."""
    words = [str(word) for word in words]
    return ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")


def unknown_key(path: Sequence[str | int], valid: Sequence[str]) -> tuple[str, str | None]:
    """Message and closest name for the key at the end of a path, which does not exist there.

    A key in quotes holds its dots and is no path; a setting may be written where it does not belong.
    """
    name, within = str(path[-1]), path[0]
    if name.partition(".")[0] in valid and "." in name:
        return f"in quotes this is one key; without them it is a path: write {name} = ...", None
    fault = f"unknown key; valid here: {', '.join(valid)}" if valid else "this takes no keys"
    if name in SETTINGS:
        place = f"of its own, beside {within}" if within in SETTINGS and len(path) > 1 else "of [train]"
        return f"{fault}; {name} is a setting {place}", None
    return fault, closest(name, valid)


def _path(error: ErrorDetails, data: object) -> tuple[str | int, ...]:
    """pydantic's place without the names of union members that it mixes in."""
    path: list[str | int] = []
    for n, key in enumerate(error["loc"]):
        if isinstance(data, dict):
            if key in data:
                data = data[key]
                path.append(key)
            elif n == len(error["loc"]) - 1 and error["type"] == "missing":
                path.append(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
            path.append(key)
    return tuple(path)


@dataclass(frozen=True)
class _Types:
    """What may stand where in validated data.

    Attributes:
        hint: the type of the whole.
        data: what was validated, by which a table's kind is known.
        words: the kinds that there are.
    """

    hint: object
    data: object
    words: Vocabulary

    def at(self, loc: Sequence[str | int]) -> object:
        """The type at pydantic's place ``loc``; of a table whose kind is known, that kind's class."""
        hint, data = self.hint, self.data
        for key in loc:
            hint = self._of_kind(hint, data)
            members = alternatives(hint)
            tagged = [member for member in members if tag_of(member) == key and key not in _keys(data)]
            if tagged:
                hint = tagged[0]
            elif isinstance(key, int) and is_list(hint):
                inner = [
                    a for member in members for a in getattr(stripped(member), "__args__", ()) if a is not Ellipsis
                ]
                hint, data = inner[min(key, len(inner) - 1)], _item(data, key)
            else:
                fields = {n: h for model in self.words.models(hint) for n, h in hints(model).items()}
                hint, data = fields.get(str(key), hint), _item(data, key)
        return self._of_kind(hint, data)

    def _of_kind(self, hint: object, data: object) -> object:
        kind = kind_of(data)
        return self.words.kinds(hint).get(kind, hint) if kind is not None else hint


def _keys(data: object) -> Collection[object]:
    return data if isinstance(data, dict) else ()


def _item(data: object, key: str | int) -> object:
    """What lies at a key; None where nothing does."""
    if isinstance(data, dict):
        return data.get(key)
    return data[key] if isinstance(data, list) and isinstance(key, int) and key < len(data) else None


def _fault(error: ErrorDetails, path: tuple[str | int, ...], types: _Types) -> Fault:
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "extra_forbidden":
        return Fault(path, *unknown_key(path, sorted(types.words.options(types.at(error["loc"][:-1])))))
    if kind == "missing":
        return Fault(path, "is missing")
    if kind == "kind_missing":
        return Fault(path, f"needs a kind: one of {', '.join(context['kinds'])}")
    if kind == "kind_unknown":
        name, valid = context["given"], context["kinds"]
        return Fault(path, f"unknown kind {shown(name)}; one of {', '.join(valid)}", closest(name, valid))
    if kind == "string_pattern_mismatch":
        if context["pattern"] == TARGET:
            return Fault(path, f"give package.module:factory, not {shown(given)}")
        return Fault(path, f"{shown(given)} may hold letters, digits and . _ + - only, a letter or digit first")
    if kind in _LIMITS:
        return Fault(path, _limit(error) + ("" if isinstance(given, dict | list | tuple) else f", not {shown(given)}"))
    wanted = _wanted(error, types)
    if wanted:
        return Fault(path, f"expected {wanted}, not {shown(given)}", _closest_of([error]))
    return Fault(path, error["msg"].removeprefix("Value error, "))


def _limit(error: ErrorDetails) -> str:
    name, words = _LIMITS[error["type"]]
    return words.format(f"{error['ctx'][name]:g}")


def _wanted(error: ErrorDetails, types: _Types) -> str | None:
    """What would have been right where a value of the wrong kind stands."""
    kind, loc = error["type"], error["loc"]
    if kind == "literal_error":
        union = loc and str(loc[-1]).startswith("<") and any(types.words.models(types.at(loc[:-1])))
        return f"{error['ctx']['expected']}{' or a table' if union else ''}"
    if kind == "table_or_kind":
        return f"a table or one of {', '.join(error['ctx']['kinds'])}"
    if kind == "model_type" and "value" in types.words.options(types.at(loc)):
        return "a number or a table"
    if kind == "tuple_type" and isinstance(error["input"], dict):
        return f"a list; write [[{loc[-1]}]]"
    return _EXPECTED.get(kind)


def _expected_one_of(errors: Sequence[ErrorDetails], types: _Types) -> str:
    limits = list(dict.fromkeys(_limit(e) for e in errors if e["type"] in _LIMITS))
    words = list(dict.fromkeys(word for e in errors if (word := _wanted(e, types))))
    said = [*limits, f"{'be' if limits else 'expected'} {' or '.join(words)}"] if words else limits
    return f"{' or '.join(said)}, not {shown(errors[0]['input'])}"


def _closest_of(errors: Sequence[ErrorDetails]) -> str | None:
    words = [word for e in errors for word in re.findall(r"'([^']*)'", str(e.get("ctx", {}).get("expected", "")))]
    return closest(errors[0]["input"], words) if isinstance(errors[0]["input"], str) else None
