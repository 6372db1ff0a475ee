"""The folders that one run writes to: one for each environment that its workers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bnpbench.results import Store
from bnpbench.suite import Block, Cell


class Stores:
    """The results of a suite, by environment.

    Args:
        out: folder of all results.
        suite: the suite's name.
        environments: of the workers that are there at the start; equal ones share a folder.
    """

    def __init__(self, out: Path, suite: str, environments: Iterable[Mapping[str, Any]]) -> None:
        self.out, self.suite = out, suite
        self.by_id = {str(e["id"]): Store(out, suite, e) for e in environments}

    @property
    def first(self) -> Store:
        return next(iter(self.by_id.values()))

    def create(self) -> None:
        """Make the folders. Raises ResultsError."""
        for store in self.by_id.values():
            store.create()

    def refuse_newer(self, cells: Iterable[Cell], document: Mapping[str, Any]) -> None:
        """Raises ResultsError where a newer bnpbench wrote what a run of these cells would write over.

        Args:
            cells: of the run.
            document: of their suite, as ``suite.json`` will hold it.
        """
        self.first.refuse_newer_suite(document)
        keys = [cell.key for cell in cells]
        for store in self.by_id.values():
            store.refuse_newer(keys)

    def of(self, environment: Mapping[str, Any]) -> Store:
        """The store of an environment; it is made where a late worker brings a new one. Raises ResultsError."""
        name = str(environment["id"])
        if name not in self.by_id:
            self.by_id[name] = Store(self.out, self.suite, environment).create()
        return self.by_id[name]

    def finished(self, block: Block) -> bool:
        """Whether the block was measured in one of the environments."""
        return any(store.finished(block.id, block.canonicals) for store in self.by_id.values())
