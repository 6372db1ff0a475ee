"""Which cells share a table: those that differ only in method, batch size and seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bnpbench.report.text import told
from bnpbench.report.view import Cell

_AXES = ("method", "batch_size", "seed")
_PREFERRED = ("dataset", "network", "engine", "precision", "device", "threads")  # to tell groups apart, best first


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that share a table.

    Attributes:
        title: the settings that tell it from its sisters; empty where it has none.
        cells: in the suite's order.
    """

    title: str
    cells: tuple[Cell, ...]

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Labels, in order of appearance."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Examples a step, in order of appearance."""
        return tuple(dict.fromkeys(cell.batch_size for cell in self.cells))

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], list[Cell]]:
        places: dict[tuple[str, int], list[Cell]] = {}
        for cell in self.cells:
            places.setdefault((cell.label, cell.batch_size), []).append(cell)
        return places

    def at(self, method: str, batch_size: int) -> list[Cell]:
        """The cells of all seeds there; empty where the suite has none."""
        return self._by_place.get((method, batch_size), [])

    def base(self, kind: str) -> str | None:
        """The label of the first method of a kind, to compare the others with."""
        return next((cell.label for cell in self.cells if cell.kind == kind), None)


def grouped(cells: Sequence[Cell]) -> list[Group]:
    """Groups in the suite's order, told apart by as few settings as will do.

    A setting that follows from method and batch size (an overridden learning rate) tells nothing apart.
    """
    paths = _telling(cells)
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(_at(cell, path) for path in paths), []).append(cell)
    return [
        Group(
            ", ".join(f"{path} = {told(json.loads(value))}" for path, value in zip(paths, values, strict=True)),
            tuple(members),
        )
        for values, members in groups.items()
    ]


def varying(cells: Sequence[Cell]) -> dict[str, dict[str, list[Cell]]]:
    """Dotted setting to its values (as JSON) and their cells, for all settings but the axes that vary."""
    found: dict[str, dict[str, list[Cell]]] = {}
    names = dict.fromkeys(name for cell in cells for name in cell.settings if name not in _AXES)
    for name in names:
        if len({json.dumps(cell.settings.get(name), sort_keys=True) for cell in cells}) == 1:
            continue
        leaves = dict.fromkeys(path for cell in cells for path in _paths(name, cell.settings.get(name)))
        tables = {path.rpartition(".")[0] for path in leaves}
        for path in leaves:
            if path in tables:  # another cell's value is empty where this one's is a table
                continue
            values: dict[str, list[Cell]] = {}
            for cell in cells:
                values.setdefault(_at(cell, path), []).append(cell)
            if len(values) > 1:
                found[path] = values
    return found


def _telling(cells: Sequence[Cell]) -> list[str]:
    paths = list(varying(cells))
    identities = [(cell.label, cell.batch_size, cell.seed) for cell in cells]
    columns = {path: [_at(cell, path) for cell in cells] for path in paths}

    def tells(chosen: Iterable[str]) -> int:
        return len(set(zip(identities, *(columns[path] for path in chosen), strict=True)))

    whole = tells(paths)
    for path in sorted(paths, key=_reluctance):
        rest = [other for other in paths if other != path]
        if tells(rest) == whole:
            paths = rest
    return paths


def _reluctance(path: str) -> int:
    """The settings that a reader expects in a heading are dropped last."""
    name = path.split(".")[0]
    return len(_PREFERRED) - _PREFERRED.index(name) if name in _PREFERRED else 0


def _paths(name: str, value: Any) -> Iterable[str]:
    if isinstance(value, dict) and value:
        for inner, item in value.items():
            yield from _paths(f"{name}.{inner}", item)
    else:
        yield name


def _at(cell: Cell, path: str) -> str:
    value: Any = cell.settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return json.dumps(value, sort_keys=True)
