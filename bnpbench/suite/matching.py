"""Which cells a pattern picks: ``when``, ``where``, ``left``, ``right``, ``cell`` and ``--only``.

A cell matches whose settings contain the given ones. A list in a pattern is a set of alternatives
unless the setting is itself a list; then it is one value, and a list of lists the alternatives. A
method is given by its label, its kind or a table of options; any other table with kinds by its kind.

Cells come as columns: for each setting its distinct values and, for every cell, which of them it
has. So a pattern looks at each value once, however many cells share it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from bnpbench.errors import SuiteError
from bnpbench.suite.document import Pattern
from bnpbench.suite.explain import closest, listed, shown, unknown_key
from bnpbench.suite.settings import SETTINGS
from bnpbench.suite.vocabulary import Vocabulary, element, is_list, kind_of

_SORTED = json.JSONEncoder(sort_keys=True)
Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]


class Table:
    """Cells as columns, one for each setting, made when first asked for.

    Args:
        size: number of cells.
        make: setting → its column.
        words: what may stand in them.
    """

    def __init__(self, size: int, make: Callable[[str], Column], words: Vocabulary) -> None:
        self.size, self._make, self._columns, self.words = size, make, dict[str, Column](), words

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = self._make(name)
        return self._columns[name]

    def matching(self, pattern: Pattern) -> Mask:
        """Which cells a pattern picks; its keys are valid (``check_pattern``)."""
        mask = np.ones(self.size, dtype=np.bool_)
        for name, wanted in pattern.items():
            mask &= self[name].matches(wanted)
        return mask

    def why_none(self, pattern: Pattern) -> tuple[str, str | None]:
        """Why a pattern picks no cell, and the value that was probably meant."""
        for name, wanted in pattern.items():
            if not self[name].matches(wanted).any():
                there = [_name(view) for view in self[name].views()]
                near = [_meant(word, {*there, *self.words.kinds(SETTINGS[name])}) for word in _words(wanted)]
                return f"no cell has this {name}; there are: {listed(dict.fromkeys(there))}", next(
                    filter(None, near), None
                )
        return f"no cell has these together: {listed(pattern)}", None


class Column:
    """One setting of many cells: distinct values, and each cell's position among them.

    Args:
        values: JSON data; equal ones become one.
        codes: each cell's position in ``values``.
        seen: how a pattern sees a value (defaults written out, label in place).
    """

    def __init__(self, values: Sequence[Any], codes: Codes, seen: Callable[[Any], Any] = lambda value: value) -> None:
        self.values: list[Any] = []
        self._seen, self._views, self._positions = seen, list[Any](), dict[str, int]()
        self._scalars: dict[tuple[bool, Any], list[int]] = {}
        self.codes: Codes = np.array([self._code(value) for value in values], dtype=np.int64)[codes]

    def used(self, mask: Mask | None = None) -> list[int]:
        """The positions that some cell (where ``mask`` holds) has."""
        codes = self.codes if mask is None else self.codes[mask]
        return np.flatnonzero(np.bincount(codes)).tolist()

    def change(self, mask: Mask, function: Callable[[Any], Any]) -> None:
        """Replaces the values where ``mask`` holds."""
        table = np.arange(len(self.values))
        for code in self.used(mask):
            table[code] = self._code(function(self.values[code]))
        self.codes[mask] = table[self.codes[mask]]

    def views(self) -> list[Any]:
        """The values that occur, as a pattern sees them."""
        return [self._views[code] for code in self.used()]

    def matches(self, wanted: object) -> Mask:
        """Which cells have a value that contains ``wanted``."""
        hits = np.zeros(len(self.values), dtype=np.bool_)
        if len(self._scalars) == len(self.values) and not isinstance(wanted, dict):
            for word in _words(wanted):
                if not isinstance(word, dict | list):
                    hits[self._scalars.get(_identity(word), [])] = True
        else:
            for code in self.used():
                hits[code] = value_matches(self._views[code], wanted)
        return hits[self.codes]

    def _code(self, value: object) -> int:
        """The position of a value, which is added if it is new."""
        text = _SORTED.encode(value)
        if text not in self._positions:
            self._positions[text] = len(self.values)
            self.values.append(value)
            self._views.append(view := self._seen(value))
            if not isinstance(view, dict | list):
                self._scalars.setdefault(_identity(view), []).append(len(self.values) - 1)
        return self._positions[text]


def value_matches(value: object, wanted: object) -> bool:
    """Whether a setting's value contains what a pattern wants of it."""
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return any(value_matches(value, word) for word in wanted if not isinstance(word, list))
        return any(_equal(value, word) for word in wanted) if _all_lists(wanted) else _equal(value, wanted)
    if isinstance(value, dict):
        if isinstance(wanted, dict):
            return all(name in value and value_matches(value[name], word) for name, word in wanted.items())
        if "kind" in value:
            return isinstance(wanted, str) and wanted in (value["kind"], value.get("label"))
        return "value" in value and _equal(value["value"], wanted)
    return _equal(value, wanted)


def check_pattern(pattern: Pattern, words: Vocabulary) -> tuple[tuple[str, ...], str, str | None] | None:
    """The first key of a pattern that no setting has: (path, message, closest valid key)."""
    return _check_keys(pattern, SETTINGS, (), words)


def combinations(where: Pattern, words: Vocabulary) -> list[Pattern]:
    """One pattern for each combination of the alternatives in ``where``."""
    paths = list(_choices(where, SETTINGS, (), words))
    found = []
    for chosen in product(*(values for _, values in paths)):
        pattern: Pattern = {}
        for (path, _), value in zip(paths, chosen, strict=True):
            inner = pattern
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = value
        found.append(pattern)
    return found


def number_of_combinations(where: Pattern, words: Vocabulary) -> int:
    """How many there are, without making them."""
    number = 1
    for _, values in _choices(where, SETTINGS, (), words):
        number *= len(values)
    return number


def only_pattern(text: str, words: Vocabulary) -> Pattern:
    """The pattern that one ``--only KEY=VALUE,…`` stands for.

    Values are read as TOML where they parse and as texts where they do not; a comma within quotes or
    brackets belongs to its value.

    Raises:
        SuiteError: there is no key, no value, or no such setting.
    """
    path, values = _parted(text)
    parts = _split(values)
    if not all(parts) or not all(path):
        raise SuiteError(f"--only {shown(text)}: write KEY=VALUE or KEY=VALUE,VALUE, as method=bn,bnp")
    pattern: Any = [_toml_value(word) for word in parts]
    for name in reversed(path):
        pattern = {name: pattern}
    fault = check_pattern(pattern, words)
    if fault:
        raise SuiteError(f"--only: {fault[1]}", key=".".join(path), closest=fault[2])
    return dict(pattern)


def setting_of(text: str) -> tuple[tuple[str, ...], Any]:
    """The path and the value that one ``--set KEY=VALUE`` stands for; ``train.`` may stand before the key.

    Raises:
        SuiteError: there is no key or no value.
    """
    path, value = _parted(text)
    if path[0] == "train":
        path = path[1:]
    if not value or not path or not all(path):
        raise SuiteError(f"--set {shown(text)}: write KEY=VALUE, as optimizer.lr=0.05")
    return path, _toml_value(value)


def _parted(text: str) -> tuple[tuple[str, ...], str]:
    key, _, value = text.partition("=")
    return tuple(name.strip() for name in key.split(".")), value.strip()


def _check_keys(
    table: Pattern, valid: Mapping[str, Any], path: tuple[str, ...], words: Vocabulary
) -> tuple[tuple[str, ...], str, str | None] | None:
    for name, wanted in table.items():
        if name not in valid:
            return ((*path, name), *unknown_key((*path, name), list(valid)))
        inner = element(valid[name]) if is_list(valid[name]) else valid[name]
        for word in _words(wanted):
            if isinstance(word, dict):
                fault = _check_keys(word, words.options(inner, kind_of(word)), (*path, name), words)
                if fault:
                    return fault
    return None


def _choices(
    table: Pattern, valid: Mapping[str, Any], path: tuple[str, ...], words: Vocabulary
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for name, wanted in table.items():
        if isinstance(wanted, dict) and wanted:
            yield from _choices(wanted, words.options(valid[name], kind_of(wanted)), (*path, name), words)
        elif isinstance(wanted, list) and (not is_list(valid[name]) or _all_lists(wanted)):
            yield (*path, name), wanted
        else:
            yield (*path, name), [wanted]


def _all_lists(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, list) for value in values)


def _words(wanted: object) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _meant(word: object, valid: set[str]) -> str | None:
    """The name nearest to one that is not valid itself."""
    return closest(word, valid) if isinstance(word, str) and word not in valid else None


def _identity(value: object) -> tuple[bool, Any]:
    """Equal for equal numbers, and never for a truth value and a number."""
    return isinstance(value, bool), value


def _equal(value: object, wanted: object) -> bool:
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_contains, value, wanted))
    if isinstance(value, dict | list) or isinstance(wanted, dict | list):
        return bool(value == wanted)
    return _identity(value) == _identity(wanted)


def _contains(item: object, wanted: object) -> bool:
    """Of an element of a list: one that is itself a list is one value."""
    return _equal(item, wanted) if isinstance(wanted, list) else value_matches(item, wanted)


def _name(view: object) -> str:
    if isinstance(view, dict):
        return str(view.get("label") or view.get("kind") or view.get("value"))
    return str(view)


def _split(values: str) -> list[str]:
    """The parts between the commas that stand in no quotes and no brackets."""
    parts, depth, quote = [""], 0, ""
    for letter in values:
        if letter == "," and not depth and not quote:
            parts.append("")
            continue
        parts[-1] += letter
        if quote or letter in "\"'":
            quote = "" if letter == quote else quote or letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return [part.strip() for part in parts]


def _toml_value(word: str) -> object:
    try:
        value = tomllib.loads(f"value = {word}")["value"]
    except (ValueError, RecursionError):
        return word
    return value if isinstance(value, bool | int | float | str | list | dict) else word
