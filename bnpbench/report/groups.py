"""Which cells share a table: those that differ only in method, batch size and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bnpbench.report.view import Cell
from bnpbench.results import differing, telling, told

_AXES = ("method", "batch_size", "seed")


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
        """Cells that share a table, told apart by as few settings as will do."""
        paths = telling([(cell.label, cell.batch_size, cell.seed) for cell in self.cells], self.differing)
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


def layout(cells: Sequence[Cell]) -> Layout:
    """Finds the settings that vary."""
    return Layout(tuple(cells), differing([cell.settings for cell in cells], _AXES))
