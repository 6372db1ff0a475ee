"""What one suite measured in one environment, cell by cell; environments never share a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa

from bnpbench.results import Results


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of the suite, measured or not.

    Attributes:
        key: its hash.
        label: how tables call its method.
        settings: every setting; of a cell that no ``suite.json`` names, those that differ from their default.
        role: ``final`` or ``trial``.
        row: its columns of CELLS; empty where it was not measured.
    """

    key: str
    label: str
    settings: Mapping[str, Any]
    role: str
    row: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def status(self) -> str:
        """``ok``, what else became of it, or ``not measured``."""
        return str(self.row["status"]) if self.row else "not measured"

    @cached_property
    def ok(self) -> bool:
        """Whether it was measured to its end."""
        return self.status == "ok"

    @property
    def kind(self) -> str:
        """The kind of its method."""
        method = self.settings.get("method")
        return str(method.get("kind")) if isinstance(method, dict) else str(method)

    @cached_property
    def batch_size(self) -> int:
        """Examples a step; 0 where unknown."""
        return _integer(self.settings.get("batch_size"), 0)

    @cached_property
    def seed(self) -> int:
        """The seed, 1 by default."""
        return _integer(self.settings.get("seed"), 1)


class Rows:
    """A table of epochs or steps as columns, with each cell's stretch of them."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)
        self._columns: dict[str, list[Any]] = {}
        self._stretches: dict[str, tuple[int, int]] = {}
        keys, start = self.column("key"), 0
        for index in range(1, len(keys) + 1):
            if index == len(keys) or keys[index] != keys[start]:
                self._stretches[keys[start]] = (start, index)
                start = index

    def column(self, name: str) -> list[Any]:
        """All values, None where missing."""
        if name not in self._columns:
            self._columns[name] = self._table.column(name).to_pylist()
        return self._columns[name]

    def of(self, key: str, name: str) -> list[Any]:
        """The values of one cell, in order."""
        start, stop = self._stretches.get(key, (0, 0))
        return self.column(name)[start:stop]


@dataclass(frozen=True, eq=False)
class View:
    """One suite in one environment.

    Attributes:
        suite: its name.
        document: what its ``suite.json`` holds; empty where there is none.
        environment: what ``environment.json`` holds.
        cells: the final cells of the suite in its order, measured or not.
        trials: the cells that only serve to choose a setting.
        strays: cells measured here that the suite does not name.
        epochs, steps: their rows.
    """

    suite: str
    document: Mapping[str, Any]
    environment: Mapping[str, Any]
    cells: tuple[Cell, ...]
    trials: tuple[Cell, ...]
    strays: tuple[Cell, ...]
    epochs: Rows
    steps: Rows
    _series: dict[tuple[str, str], Mapping[int, float]] = field(default_factory=dict, repr=False)
    _times: dict[tuple[str, str], Mapping[int, float]] = field(default_factory=dict, repr=False)
    _first: dict[tuple[str, float], int | None] = field(default_factory=dict, repr=False)

    @cached_property
    def by_key(self) -> dict[str, Cell]:
        """Key to cell, trials included."""
        return {cell.key: cell for cell in (*self.trials, *self.cells)}

    @cached_property
    def select(self) -> Mapping[str, str]:
        """What ``[select]`` chooses over and by; empty for a suite that chooses nothing."""
        select = self.document.get("select")
        named = isinstance(select, dict) and all(isinstance(select.get(name), str) for name in ("over", "by"))
        return select if isinstance(select, dict) and named else {}

    def series(self, cell: Cell, name: str) -> Mapping[int, float]:
        """Epoch to value of a column of epochs; missing values are left out, NaN stays."""
        if (cell.key, name) not in self._series:
            pairs = zip(self.epochs.of(cell.key, "epoch"), self.epochs.of(cell.key, name), strict=True)
            self._series[cell.key, name] = {e: float(v) for e, v in pairs if e is not None and v is not None}
        return self._series[cell.key, name]

    def times(self, cell: Cell, name: str) -> Mapping[int, float]:
        """Epoch to value of a column of times; those that are none, negative or infinite, are left out."""
        if (cell.key, name) not in self._times:
            series = self.series(cell, name)
            if not math.isfinite(sum(series.values())) or min(series.values(), default=0) < 0:
                series = {epoch: seconds for epoch, seconds in series.items() if 0 <= seconds < math.inf}
            self._times[cell.key, name] = series
        return self._times[cell.key, name]

    def first_epoch(self, cell: Cell, target: float) -> int | None:
        """The first epoch whose test accuracy reaches the target; None where none does."""
        if (cell.key, target) not in self._first:
            shares = self.series(cell, "test_accuracy")
            self._first[cell.key, target] = next((e for e in sorted(shares) if shares[e] >= target), None)
        return self._first[cell.key, target]

    def paired(self, left: Cell, right: Cell) -> bool:
        """Whether both were measured in turn, in one process; not so where that died, and each ran on its own."""
        both = bool(left.row and right.row) and left.row["block"] == right.row["block"] and left.key != right.key
        return both and all(None not in self.epochs.of(cell.key, "turn") for cell in (left, right))


def views(results: Results) -> list[View]:
    """One view for each suite and environment that has cells, in alphabetical order of both."""
    cells = pa.Table.from_pandas(results.cells, preserve_index=False).to_pylist()
    measured: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in cells:
        measured.setdefault((row["suite"], row["environment"]), {})[row["key"]] = row
    found = []
    for (suite, environment), rows in sorted(measured.items()):
        document = results.suites.get(suite, {})
        named = [_named(cell, rows) for cell in document.get("cells", ())]
        known = {cell.key for cell in named}
        strays = [_stray(row) for key, row in rows.items() if key not in known]
        if not document:
            named, strays = strays, []
        found.append(
            View(
                suite,
                document,
                results.environments.get(environment, {"id": environment}),
                tuple(cell for cell in named if cell.role != "trial"),
                tuple(cell for cell in named if cell.role == "trial"),
                tuple(strays),
                _rows(results.epochs, suite, environment),
                _rows(results.steps, suite, environment),
            )
        )
    return found


def finite(values: Iterable[float]) -> list[float]:
    """The values that are numbers."""
    return [value for value in values if math.isfinite(value)]


def number(value: Any) -> float:
    """A number of a file that may be anyone's; infinite where it is more than a float holds."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _integer(value: Any, default: int) -> int:
    """A setting of a file that may be anyone's."""
    return value if isinstance(value, int) and abs(value) < 2**63 else default


def _named(cell: Mapping[str, Any], rows: Mapping[str, dict[str, Any]]) -> Cell:
    row = rows.get(cell["key"], {})
    label = str(cell.get("label") or row.get("label") or "?")
    return Cell(cell["key"], label, cell["settings"], str(cell.get("role", "final")), row)


def _stray(row: dict[str, Any]) -> Cell:
    return Cell(row["key"], str(row["label"] or "?"), json.loads(row["settings"]), str(row["role"] or "final"), row)


def _rows(frame: pd.DataFrame, suite: str, environment: str) -> Rows:
    return Rows(frame[(frame["suite"] == suite) & (frame["environment"] == environment)])
