"""Which cells share a table: those that differ only in method, batch size and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bnpbench.report.text import told
from bnpbench.report.view import Cell

_AXES = ("method", "batch_size", "seed")
# Which tell groups apart, best first.
_PREFERRED = ("dataset", "network", "engine", "precision", "memory_format", "device", "devices", "threads")


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

    def places(self) -> Iterator[tuple[str, int, list[Cell]]]:
        """Method, batch size and cells, by batch size; only where anything was run at all."""
        for batch_size in self.batch_sizes:
            for method in self.methods:
                if any(cell.row for cell in self.at(method, batch_size)):
                    yield method, batch_size, self.at(method, batch_size)

    def base(self, kind: str) -> str | None:
        """The label of the first method of a kind, to compare the others with."""
        return next((cell.label for cell in self.cells if cell.kind == kind), None)


@dataclass(frozen=True, eq=False)
class Layout:
    """How the cells of a suite differ, apart from method, batch size and seed.

    Attributes:
        cells: in the suite's order.
        differing: dotted setting to what each cell has there, for the settings that vary.
    """

    cells: tuple[Cell, ...]
    differing: dict[str, list[Any]]

    @cached_property
    def groups(self) -> list[Group]:
        """Cells that share a table, told apart by as few settings as will do.

        A setting that follows from method and batch size (an overridden learning rate) tells nothing apart.
        """
        paths = self._telling()
        members: dict[tuple[str, ...], list[int]] = {}
        for index, place in enumerate(zip(*(map(repr, self.differing[path]) for path in paths), strict=True)):
            members.setdefault(place, []).append(index)
        if not paths:
            members = {(): list(range(len(self.cells)))}
        return [
            Group(
                ", ".join(f"{path} = {told(self.differing[path][indices[0]])}" for path in paths),
                tuple(self.cells[index] for index in indices),
            )
            for indices in members.values()
        ]

    def _telling(self) -> list[str]:
        identities = [(cell.label, cell.batch_size, cell.seed) for cell in self.cells]
        columns = {path: list(map(repr, values)) for path, values in self.differing.items()}

        def tells(chosen: Iterable[str]) -> int:
            return len(set(zip(identities, *(columns[path] for path in chosen), strict=True)))

        paths = list(columns)
        whole = tells(paths)
        for path in sorted(paths, key=_reluctance):
            rest = [other for other in paths if other != path]
            if tells(rest) == whole:
                paths = rest
        return paths


def layout(cells: Sequence[Cell]) -> Layout:
    """Finds the settings that vary."""
    differing: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for cell in cells for name in cell.settings if name not in _AXES):
        values = [cell.settings.get(name) for cell in cells]
        if all(value == values[0] for value in values):
            continue
        paths = dict.fromkeys(path for value in _distinct(values) for path in _paths(name, value))
        tables = {path.rpartition(".")[0] for path in paths}
        for path in paths:
            if path not in tables:  # another cell's value may be empty where this one's is a table
                differing[path] = [setting(cell, path) for cell in cells]
    return Layout(tuple(cells), {path: values for path, values in differing.items() if len(_distinct(values)) > 1})


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())


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


def setting(cell: Cell, path: str) -> Any:
    """A cell's setting by its dotted name; None where it has none."""
    value: Any = cell.settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
