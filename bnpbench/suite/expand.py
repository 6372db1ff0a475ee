"""From ``[train]``, ``[sweep]`` and ``[[override]]`` to the settings of every cell.

The product of the axes comes first, then the overrides in their order. An override looks at the
cells as the ones before it left them, so where two speak of one setting the later one wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ValidationError, create_model

from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import DataError, Origin, SuiteError
from bnpbench.fields import Options
from bnpbench.initializations.keep import Keep
from bnpbench.networks.base import NetworkPlugin
from bnpbench.optimizers.base import OptimizerPlugin
from bnpbench.suite.differences import setting
from bnpbench.suite.document import Document
from bnpbench.suite.explain import Fault, closest, explain, listed, unknown_key
from bnpbench.suite.matching import Codes, Column, Mask, Table, check_pattern
from bnpbench.suite.settings import SETTINGS, Settings
from bnpbench.suite.source import KeyPath, Source, contains
from bnpbench.suite.vocabulary import Vocabulary, default, frozen, is_list, kind_of, named_without, plain
from bnpbench.text import number_of

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Axis:
    """One axis of the sweep: a setting's dotted path and the values that it takes.

    Attributes:
        words: what may stand in a suite.
        path: of the setting.
        hint: its type.
        values: at least one.
        place: of the axis in the file.
    """

    words: Vocabulary
    path: tuple[str, ...]
    hint: object
    values: list[Any]
    place: KeyPath

    @property
    def name(self) -> str:
        """The path as a user writes it."""
        return ".".join(self.path)

    def settings(self, position: int) -> dict[str, Any]:
        """The settings that one of its values stands for."""
        return self.holding(self.values[position])

    def holding(self, value: object) -> dict[str, Any]:
        """The settings that a value stands for, be it one of its own."""
        for key in reversed(self.path[1:]):
            value = {key: value}
        return {self.path[0]: self.words.as_table(SETTINGS[self.path[0]], value)}

    def over(self, base: object, position: int) -> object:
        """The setting ``base`` with one of the values in it; a value for the whole setting replaces it.

        A ``base`` of a kind that has no such option stays as it is.
        """
        value = self.settings(position)[self.path[0]]
        if len(self.path) == 1:
            return value
        return merged(base, value) if self.concerns(base) else base

    def concerns(self, base: object) -> bool:
        """Whether a setting may have this part: it is of no kind, of an unknown one, or of one with the option."""
        hint = SETTINGS[self.path[0]]
        kind = kind_of(base)
        return kind not in self.words.kinds(hint) or self.path[1] in ("kind", *self.words.options(hint, kind))


class Grid:
    """Every cell of a suite: a row for each point of the product, before equal ones collapse.

    Args:
        source: the file, for errors.
        document: its validated tables.
        words: what may stand in them.

    Attributes:
        plugins: the SHA-256 of all code that its cells run beside bnpbench. Whoever loads the suite sets it before
            settings are asked for, because only the expanded networks say what is imported.

    Raises:
        SuiteError: an axis, an override or a setting is wrong.
    """

    def __init__(self, source: Source, document: Document, words: Vocabulary) -> None:
        self.source, self._document, self.words = source, document, words
        self.plugins: tuple[str, ...] = ()
        self._check_tables()
        self.axes = tuple(self._axes(document.sweep, SETTINGS, (), ("sweep",)))
        self.size = math.prod(len(axis.values) for axis in self.axes)
        if self.size > MAX_CELLS:
            raise source.error(f"{self.size:,} cells; a suite has at most {MAX_CELLS:,}", ("sweep",))
        self._check_overrides()
        self.table = Table(self.size, self._column, words)
        self._changed = [self._override(number) for number in range(len(document.override))]
        self._keep_weights()

    @cached_property
    def coordinates(self) -> Codes:
        """The position of each cell (row) on each axis (column); the first axis turns slowest."""
        shape = [len(axis.values) for axis in self.axes]
        return np.stack(np.unravel_index(np.arange(self.size), shape), axis=1) if shape else np.zeros((1, 0), np.int64)

    @cached_property
    def settings(self) -> tuple[Settings, ...]:
        """The settings of every row.

        Raises:
            SuiteError: one is missing, misspelt, of the wrong type or out of range; named where it was written.
        """
        rows = zip(*(self.table[name].codes.tolist() for name in SETTINGS), strict=True)
        return tuple(self._settings(row) for row in rows)

    def values(self, name: str) -> Iterator[tuple[int, Any]]:
        """The values of one setting, validated, each with the first row that has it.

        Raises:
            SuiteError: as of ``settings``.
        """
        codes = self.table[name].codes
        for code, value in self._models[name].items():
            yield int(np.argmax(codes == code)), value

    def _settings(self, codes: tuple[int, ...]) -> Settings:
        """Put together as it is: each value has been validated, and rules between settings are in checks.py."""
        values = {name: self._models[name][code] for name, code in zip(SETTINGS, codes, strict=True)}
        return Settings.model_construct(plugins=self.plugins, **values)

    def cells(self, rows: Mask, chosen: frozenset[str] = frozenset()) -> Table:
        """The cells of some rows, each once, with their settings validated.

        Args:
            rows: which.
            chosen: options of methods whose best values are looked for, which no label tells.
        """
        columns = {name: self._resolved(name, rows, chosen) for name in SETTINGS}
        codes = np.stack([column.codes for column in columns.values()], axis=1)
        kept = np.sort(np.unique(codes, axis=0, return_index=True)[1])
        return Table(len(kept), lambda name: Column(columns[name].values, columns[name].codes[kept]), self.words)

    def error(self, message: str, row: int, path: tuple[str, ...], closest: str | None = None) -> SuiteError:
        """The error for a fault in one setting of one row, placed where that setting was written last."""
        return SuiteError(message, **self.origin(row, path)._asdict(), closest=closest)

    def origin(self, row: int, path: tuple[str, ...]) -> Origin:
        """Where one setting of one row was written last; where it would be written, for a default."""
        for length in range(len(path), 0, -1):
            for place, keys, table in self._writers(row):
                if contains(table, path[:length]):
                    return self.source.origin((*place, *path[keys:]))
        return self.source.origin(("train", *path))

    # --- the parts of the file ----------------------------------------------------------------

    def _check_tables(self) -> None:
        self._check_settings(self._document.train, ("train",))

    def _check_overrides(self) -> None:
        for number, override in enumerate(self._document.override):
            place = ("override", number)
            fault = check_pattern(override.when, self.words)
            if fault:
                raise self.source.error(fault[1], (*place, "when", *fault[0]), fault[2])
            for _, settings in self._along_axes(number):
                self._check_settings(settings, (*place, "set"))

    def _check_settings(self, table: dict[str, Any], place: KeyPath) -> None:
        for name, value in table.items():
            if name not in SETTINGS:
                message, near = unknown_key((name,), list(SETTINGS))
                raise self.source.error(message, (*place, name), near)
            self._check_value((name,), SETTINGS[name], value, (*place, name))

    def _check_value(self, path: tuple[str, ...], hint: object, value: object, place: KeyPath) -> None:
        """Finds what is wrong with a value whatever completes it: misspelt names, wrong types."""
        table = self.words.as_table(hint, value)
        if isinstance(table, dict) and "kind" not in table and self.words.options(hint):
            for name, inner in table.items():
                valid = self.words.options(hint)
                if name not in valid:
                    message, near = unknown_key((*path, name), list(self._options(path, valid)))
                    raise self.source.error(message, (*place, name), near)
                self._check_value((*path, name), valid[name], inner, (*place, name))
            return
        try:
            _model(path[-1], hint).model_validate({path[-1]: frozen(value)}, context=self.words.registry)
        except ValidationError as error:
            fault = explain(error, _model(path[-1], hint), {path[-1]: value}, self.words, partial=True)
            if fault:
                raise self.source.error(fault.message, (*place, *fault.path[1:]), fault.closest) from None

    def _options(self, path: tuple[str, ...], valid: dict[str, Any]) -> dict[str, Any]:
        """Of what is valid for some kind of the setting at ``path``, what the kinds that the suite names have."""
        if len(path) != 1:
            return valid
        (name,) = path
        swept = self._document.sweep.get(name, [])
        given = [self._document.train.get(name, default(name)), *(one.set.get(name) for one in self._document.override)]
        given += swept if isinstance(swept, list) else [{"kind": kind} for kind in _listed(swept.get("kind"))]
        kinds = {kind_of(self.words.as_table(SETTINGS[name], value)) for value in given} - {None}
        known = kinds & set(self.words.kinds(SETTINGS[name]))
        found: dict[str, Any] = {}
        for kind in sorted(map(str, known)):
            found |= self.words.options(SETTINGS[name], kind)
        return found or valid

    def _axes(
        self, table: dict[str, Any], valid: dict[str, Any], path: tuple[str, ...], file: KeyPath
    ) -> Iterator[Axis]:
        """The axes of a part of ``[sweep]``.

        Args:
            table: the part.
            valid: what may stand in it.
            path: of the setting that it is of.
            file: where it stands. A dotted name in quotes is an axis of a part beside one of the whole:
                ``"method.rho"``.
        """
        for name, value in table.items():
            place = (*file, name)
            inner, own = valid, path
            beside = isinstance(table.get(name.partition(".")[0]), list)
            for part in name.split(".") if beside else [name]:
                if part not in inner:
                    message, near = unknown_key((*own, part), list(self._options(own, inner)))
                    raise self.source.error(message, place, near)
                hint, own = inner[part], (*own, part)
                inner = self.words.options(hint)
            if isinstance(value, dict) and inner:
                yield from self._axes(value, inner, own, place)
                continue
            if not isinstance(value, list):
                raise self.source.error("an axis is a list of values; put [ ] around it", place)
            if not value:
                raise self.source.error("an axis needs at least one value", place)
            if len(value) > MAX_CELLS:
                raise self.source.error(f"{len(value):,} values; a suite has at most {MAX_CELLS:,} cells", place)
            for number, element in enumerate(value):
                self._check_value(own, hint, element, (*place, number))
            yield Axis(self.words, own, hint, value, place)

    def _column(self, name: str) -> Column:
        hint = SETTINGS[name]
        first = self.words.as_table(hint, self._document.train.get(name, default(name)))
        values, codes = [first], np.zeros(self.size, dtype=np.int64)
        for number, axis in sorted(enumerate(self.axes), key=lambda pair: len(pair[1].path)):  # the whole before parts
            if axis.path[0] == name:
                count = len(axis.values)
                if len(axis.path) > 1 and not any(map(axis.concerns, values)):
                    kinds = dict.fromkeys(str(kind_of(value)) for value in values)
                    message = f"no {name} here has an option {axis.path[1]!r}: {listed(kinds)}"
                    raise self.source.error(message, axis.place, closest(axis.path[1], self._options((name,), {})))
                pairs, codes = np.unique(codes * count + self.coordinates[:, number], return_inverse=True)
                values = [axis.over(values[pair // count], pair % count) for pair in pairs.tolist()]
        return Column(values, codes, lambda value: self._view(name, value))

    def _override(self, number: int) -> Mask:
        override = self._document.override[number]
        mask = self.table.matching(override.when)
        if not mask.any():
            message, near = self.table.why_none(override.when)
            raise self.source.error(f"matches no cell: {message}", ("override", number, "when"), near)
        for part, settings in self._along_axes(number):
            for name, change in settings.items():
                table = self.words.as_table(SETTINGS[name], change)
                self.table[name].change(mask & part, lambda value, table=table: merged(value, table))  # type: ignore[misc]
        return mask

    def _along_axes(self, number: int) -> list[tuple[Mask, dict[str, Any]]]:
        """The settings of an override, each with the cells that it is for.

        A list in the place of one value goes along the axis of this setting: an element for each of the axis's values.
        """
        given = self._document.override[number].set
        found = [(np.ones(self.size, dtype=np.bool_), given)]
        for column, axis in enumerate(self.axes):
            values = setting(given, axis.name)
            if isinstance(values, list) and not is_list(axis.hint):
                if len(values) != len(axis.values):
                    message = (
                        f"{number_of(len(values), 'value')} along an axis of {len(axis.values)}; give one for each"
                    )
                    raise self.source.error(message, ("override", number, "set", *axis.path))
                found = [
                    (
                        mask & (self.coordinates[:, column] == place),
                        cast(dict[str, Any], merged(settings, axis.holding(value))),
                    )
                    for mask, settings in found
                    for place, value in enumerate(values)
                ]
        return found

    def _keep_weights(self) -> None:
        """Where nothing says how weights are drawn, a network of others keeps its own."""
        if "initialization" in {*self._document.train, *(axis.path[0] for axis in self.axes)}:
            return
        made = {kind for kind, network in self.words.registry.kinds(NetworkPlugin).items() if network.of_others}
        unwritten, networks = np.ones(self.size, dtype=bool), self.table["network"]
        for override, mask in zip(self._document.override, self._changed, strict=True):
            if "initialization" in override.set:
                unwritten &= ~mask
        of_others = [kind_of(value) in made for value in networks.values]
        mask = unwritten & np.array(of_others, dtype=bool)[networks.codes]
        if mask.any():
            self.table["initialization"].change(mask, lambda value: {"kind": Keep.word()})

    # --- validation ---------------------------------------------------------------------------

    @cached_property
    def _models(self) -> dict[str, dict[int, Any]]:
        return {name: self._validated(name) for name in SETTINGS}

    def _resolved(self, name: str, rows: Mask, chosen: frozenset[str]) -> Column:
        column = self.table[name]
        codes = column.used(rows)
        models = [self._models[name][code] for code in codes]
        if name == "method":
            models = [named_without(method, chosen) for method in models]
        values = [self._view(name, plain(model)) for model in models]
        return Column(values, np.searchsorted(codes, column.codes[rows]))

    def _validated(self, name: str) -> dict[int, Any]:
        """Position in a setting's column → its validated value."""
        column, models = self.table[name], {}
        model = _model(name, SETTINGS[name])
        for code in column.used():
            data = {name: column.values[code]}
            if column.values[code] is None and default(name) is None and Settings.model_fields[name].is_required():
                raise self._missing(name)
            try:
                models[code] = getattr(model.model_validate(frozen(data), context=self.words.registry), name)
                if isinstance(models[code], DatasetPlugin):
                    models[code] = models[code].located(self.source.path.parent)
                elif isinstance(models[code], NetworkPlugin | OptimizerPlugin):
                    models[code] = models[code].pinned()
            except ValidationError as error:
                fault = explain(error, model, data, self.words) or Fault((name,), str(error))
                row = int(np.argmax(column.codes == code))
                raise self.error(fault.message, row, tuple(str(key) for key in fault.path), fault.closest) from None
            except (DataError, SuiteError) as error:
                versioned = isinstance(column.values[code], dict) and "version" in column.values[code]
                key = "path" if isinstance(error, DataError) else "version" if versioned else "kind"
                raise self.error(str(error), int(np.argmax(column.codes == code)), (name, key)) from None
        return models

    def _view(self, name: str, value: object) -> object:
        """A setting as a pattern sees it: its defaults written out, a method's label among its options."""
        view = self.words.filled(SETTINGS[name], value)
        if name == "method" and isinstance(view, dict):
            return {**view, "label": self.words.method_label(value)}
        return view

    def _missing(self, name: str) -> SuiteError:
        near = closest(name, [*self._document.train, *self._document.sweep])
        return self.source.error(f"{name} is missing: give it in [train] or as an axis of [sweep]", ("train",), near)

    def _writers(self, row: int) -> Iterator[tuple[KeyPath, int, dict[str, Any]]]:
        """What wrote a row's settings, the last writer first.

        Yields: its place in the file, how many keys of a setting's path that place stands for, and the
        settings that it writes.
        """
        for number in reversed(range(len(self._changed))):
            if self._changed[number][row]:
                yield ("override", number, "set"), 0, self._document.override[number].set
        for axis, position in zip(self.axes, self.coordinates[row].tolist(), strict=True):
            yield (*axis.place, position), len(axis.path), axis.settings(position)
        yield ("train",), 0, self._document.train


def merged(base: object, change: object) -> object:
    """``base`` with ``change`` put over it, deeply; a table of another kind replaces."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    if "kind" in change and "kind" in base and change["kind"] != base["kind"]:
        return change
    return {**base, **{name: merged(base.get(name), value) for name, value in change.items()}}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


@cache
def _model(name: str, hint: object) -> type[BaseModel]:
    """A table that holds one setting alone."""
    fields: dict[str, Any] = {name: (hint, ...)}
    return create_model(name, __base__=Options, **fields)
