"""What one suite measured in one environment, cell by cell; environments never share a table.

A cell's row, its epochs and its steps are typed records and columns. Beside them stands one tidy frame a suite: a row a
cell, with the settings that vary as columns; tables are grouped by it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from bnpbench.errors import SuiteError
from bnpbench.methods.base import Ink
from bnpbench.records.documents import CellRecord, Environment, SuiteRecord
from bnpbench.records.rows import is_own, metric, own_numbers
from bnpbench.results import Results
from bnpbench.results.schema import STATUSES
from bnpbench.suite import differing, heading, setting, telling, told
from bnpbench.suite.document import Pattern
from bnpbench.suite.explain import closest
from bnpbench.suite.matching import only_pattern, value_matches
from bnpbench.suite.settings import having
from bnpbench.suite.vocabulary import Vocabulary
from bnpbench.text import number_of, some

if TYPE_CHECKING:
    import pandas as pd

Scalar = str | int | float | bool | datetime | None  # what a column holds; None where nothing is known
Series = Mapping[int, float]  # epoch to value


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of the suite, measured or not.

    Attributes:
        key: its hash.
        label: how tables call its method.
        settings: every setting; of a cell that no ``suite.json`` names, those that differ from their default.
        role: ``final`` or ``trial``.
        whole: epochs in the suite, where the run took another number of them.
        row: its columns of CELLS; empty where it was not measured.
    """

    key: str
    label: str
    settings: Mapping[str, Any]
    role: str
    row: Mapping[str, Scalar] = field(default_factory=dict)
    whole: int | None = None

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

    @property
    def epochs(self) -> int:
        """How many the run was asked for; 0 where unknown."""
        return _integer(self.settings.get("epochs"), 0)

    @property
    def shortened(self) -> str:
        """``4 of 15 epochs``; empty where the run was not shortened."""
        return f"{self.epochs} of {number_of(self.whole, 'epoch')}" if self.whole and self.epochs < self.whole else ""

    def count(self, name: str) -> int | None:
        """A column of whole numbers; None where it is not known."""
        value = self.row.get(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str:
        """A column as text; empty where it is not known."""
        value = self.row.get(name)
        return "" if value is None else str(value)


class Rows:
    """A table of epochs or steps as columns, with each cell's stretch of them.

    Args:
        frame: rows of EPOCHS or STEPS, those of a cell together. Arrow dtypes: null is not NaN.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)
        self._columns: dict[str, list[Scalar]] = {}
        self._numbers: dict[str, list[float | None]] = {}
        self._times: dict[str, bool] = {}
        runs = pc.run_end_encode(self._table.column("key").combine_chunks())
        ends = runs.run_ends.to_pylist()
        places = map(slice, [0, *ends], ends)
        self._stretches = dict(zip(map(str, runs.values.to_pylist()), places, strict=True))

    def of(self, key: str, name: str) -> list[Scalar]:
        """The values of one cell, in order; None where missing."""
        if name not in self._columns:
            self._columns[name] = _listed(self._table.column(name))
        return self._columns[name][self._stretches.get(key, slice(0))]

    def numbers(self, key: str, name: str) -> list[float | None]:
        """The values of one cell in a column of numbers, or of a metric of the suite's own."""
        if name not in self._numbers:
            if is_own(name):
                self._numbers[name] = [numbers.get(name) for numbers in self._own]
            else:
                column = self._table.column(name)
                known = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
                numbers = _listed(column.cast(pa.float64(), safe=False)) if known else [None] * len(column)
                self._numbers[name] = numbers
        return self._numbers[name][self._stretches.get(key, slice(0))]

    def own(self, key: str) -> tuple[str, ...]:
        """The metrics of the suite's own that one cell has numbers of."""
        return tuple(dict.fromkeys(name for row in self._own[self._stretches.get(key, slice(0))] for name in row))

    @cached_property
    def _own(self) -> list[dict[str, float]]:
        return [own_numbers(text) for text in _listed(self._table.column("metrics"))]

    def are_times(self, name: str) -> bool:
        """Whether every number of a column, of all cells, may be a time: not negative, infinite or NaN."""
        if name not in self._times:
            column = self._table.column(name)
            least, most = pc.min_max(column).as_py().values()
            finite = pc.all(pc.is_finite(column)).as_py() is not False
            self._times[name] = finite and (least is None or 0 <= least <= most)
        return self._times[name]


def _listed(column: pa.ChunkedArray) -> list[Any]:
    """Its values as Python's own; None where missing."""
    numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    fast = numbers and not column.null_count  # a tenth of the time
    values: list[Any] = column.to_numpy().tolist() if fast else column.to_pylist()
    return values


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that share a table: those that differ only in method, batch size and seed.

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
    """How cells differ, apart from method, batch size and seed.

    Attributes:
        cells: in the suite's order.
        differing: dotted setting to what each cell has there, for the settings that vary.
    """

    cells: tuple[Cell, ...]
    differing: Mapping[str, Sequence[Any]]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a cell: the cell, its place, and the settings that vary, as they are written in Python.

        Names and values may be a stranger's, and pandas groups by no text that UTF-8 does not have: hence ``ascii``.
        """
        import pandas as pd

        places = {
            "cell": list(self.cells),
            "method": [cell.label for cell in self.cells],
            "batch_size": [cell.batch_size for cell in self.cells],
            "seed": [cell.seed for cell in self.cells],
        }
        varying = {ascii(path): list(map(ascii, values)) for path, values in self.differing.items()}
        return pd.DataFrame({**places, **varying}, dtype=object)

    @cached_property
    def groups(self) -> list[Group]:
        """Cells that share a table, told apart by as few settings as will do."""
        identities = list(zip(self.frame["method"], self.frame["batch_size"], self.frame["seed"], strict=True))
        paths = telling(identities, self.differing)
        if not paths:
            return [Group("", self.cells)]
        titled = [
            (", ".join(heading(path, self.differing[path][rows.index[0]]) for path in paths), rows["cell"])
            for _, rows in self.frame.groupby(list(map(ascii, paths)), sort=False)
        ]
        return [Group(title, tuple(cells)) for title, cells in titled]


@dataclass(frozen=True, eq=False)
class View:
    """One suite in one environment.

    Attributes:
        suite: its name.
        document: its ``suite.json``; of nothing but a name where there is none.
        named: whether there is one.
        environment: its ``environment.json``.
        cells: the final cells of the suite in its order, measured or not.
        trials: the cells that only serve to choose a setting.
        strays: cells measured here that the suite does not name.
        epochs, steps: their rows.
    """

    suite: str
    document: SuiteRecord
    named: bool
    environment: Environment
    cells: tuple[Cell, ...]
    trials: tuple[Cell, ...]
    strays: tuple[Cell, ...]
    epochs: Rows
    steps: Rows
    _series: dict[tuple[str, str], Series] = field(default_factory=dict, repr=False)
    _times: dict[tuple[str, str], Series] = field(default_factory=dict, repr=False)
    _reaching: dict[tuple[str, float], int | None] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> str:
        """The environment's."""
        return self.environment.id

    @cached_property
    def by_key(self) -> dict[str, Cell]:
        """Key to cell, trials included."""
        return {cell.key: cell for cell in (*self.trials, *self.cells)}

    @cached_property
    def layout(self) -> Layout:
        """How its cells differ."""
        return layout(self.cells)

    @cached_property
    def groups(self) -> list[Group]:
        """The cells that share a table, where anything of them was run at all."""
        return [group for group in self.layout.groups if any(group.places())]

    @cached_property
    def titles(self) -> dict[str, str]:
        """Key to the title of the cell's group."""
        return {cell.key: group.title for group in self.groups for cell in group.cells}

    @property
    def inks(self) -> dict[str, Ink]:
        """Kind → ink, of the methods of the suite's plugins that have one."""
        entries = (self.document.inks or {}).items()
        return {kind: ink for kind, entry in entries if (ink := Ink.read(entry)) is not None}

    def series(self, cell: Cell, name: str) -> Series:
        """Epoch to value of a column of epochs; missing values are left out, NaN stays."""
        if (cell.key, name) not in self._series:
            epochs = cast(list[int | None], self.epochs.of(cell.key, "epoch"))
            pairs = zip(epochs, self.epochs.numbers(cell.key, name), strict=True)
            self._series[cell.key, name] = {e: v for e, v in pairs if e is not None and v is not None}
        return self._series[cell.key, name]

    def times(self, cell: Cell, name: str) -> Series:
        """Epoch to value of a column of times; those that are none, negative or infinite, are left out."""
        if (cell.key, name) not in self._times:
            series = self.series(cell, name)
            if not self.epochs.are_times(name):
                series = {epoch: seconds for epoch, seconds in series.items() if 0 <= seconds < math.inf}
            self._times[cell.key, name] = series
        return self._times[cell.key, name]

    def reaching(self, cell: Cell, target: float) -> int | None:
        """The first epoch at which the metric of the suite's targets is as good as this; None where it never is."""
        if (cell.key, target) not in self._reaching:
            numbers = self.series(cell, self.document.metric)
            sign = metric(self.document.metric).sign
            found = (epoch for epoch in sorted(numbers) if sign * numbers[epoch] >= sign * target)
            self._reaching[cell.key, target] = next(found, None)
        return self._reaching[cell.key, target]

    def paired(self, left: Cell, right: Cell) -> bool:
        """Whether both were measured in turn, in one process; not so where that died, and each ran on its own."""
        both = bool(left.row and right.row) and left.row["block"] == right.row["block"] and left.key != right.key
        return both and all(None not in self.epochs.of(cell.key, "turn") for cell in (left, right))


def views(results: Results) -> list[View]:
    """One view for each suite and environment that has cells, in alphabetical order of both."""
    return [
        _view(results, str(suite), str(environment), frame)
        for (suite, environment), frame in results.cells.groupby(["suite", "environment"])
    ]


def narrowed(results: Results, suites: Sequence[str] = (), only: Sequence[str] = ()) -> Results:
    """The results of some suites, and of these the cells that every filter lets through.

    Args:
        results: what was read.
        suites: their names; all where there are none.
        only: ``KEY=VALUE,...`` each, as of ``bnpbench run``.

    Raises:
        SuiteError: no suite is called so; no setting or no cell has this.
    """
    known = {*results.suites, *map(str, results.cells["suite"])}
    if missing := [name for name in suites if name not in known]:
        names = some(sorted(known)) or "none"
        raise SuiteError(
            f"--suite {missing[0]}: no suite that was measured has this name; there are {names}",
            closest=closest(missing[0], known),
        )
    if suites:
        results = results.of_suites(suites)
    if not only:
        return results
    words = Vocabulary()
    cells = {cell.key: cell for view in views(results) for cell in (*view.cells, *view.trials, *view.strays)}
    for text in only:
        pattern = only_pattern(text, words)
        fitting = {key: cell for key, cell in cells.items() if _fits(cell, pattern)}
        if not fitting:
            path, _, wanted = (part.strip() for part in text.partition("="))
            there = dict.fromkeys(word for cell in cells.values() for word in _words(cell, path))
            raise SuiteError(
                f"--only {text}: nothing that was measured has this; there are {some(there, 12)}",
                closest=closest(wanted, there),
            )
        cells = fitting
    return results.of_cells(cells)


def _words(cell: Cell, path: str) -> list[str]:
    """What a cell's setting is called."""
    value = setting(cell.settings, path)
    kind = [str(value["kind"])] if isinstance(value, dict) and "kind" in value else [told(value)]
    return [cell.label, *kind] if path == "method" else kind


def _fits(cell: Cell, pattern: Pattern) -> bool:
    method = cell.settings.get("method")
    settings = {**cell.settings, **({"method": {**method, "label": cell.label}} if isinstance(method, dict) else {})}
    return all(value_matches(settings.get(name), wanted) for name, wanted in pattern.items())


def layout(cells: Sequence[Cell]) -> Layout:
    """Finds the settings that vary."""
    return Layout(tuple(cells), differing([cell.settings for cell in cells], having("axis")))


def measured(cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """The cells measured to their end, and what became of the others; all of it when there are no others."""
    whole = [cell for cell in cells if cell.ok]
    statuses = [cell.status for cell in cells if not cell.ok]
    if not cells:
        return [], "not in the suite"
    if not whole and len(set(statuses)) == 1:
        return [], statuses[0]
    return whole, tallied(statuses)


def tallied(words: Sequence[str]) -> str:
    """``2 not measured, 1 diverged`` of statuses, ``no test_accuracy (2 seeds)`` of other reasons."""
    if len(words) == 1 and words[0] not in _STATES:
        return words[0]
    counts = Counter(words)
    return ", ".join(
        f"{n} {word}" if word in _STATES else f"{word} ({number_of(n, 'seed')})" for word, n in counts.items()
    )


_STATES = STATUSES | {"not measured"}


def number(value: float) -> float:
    """A number of a file that may be anyone's; infinite where it is more than a float holds."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _integer(value: object, default: int) -> int:
    """A setting of a file that may be anyone's."""
    return value if isinstance(value, int) and abs(value) < 2**63 else default


def _view(results: Results, suite: str, environment: str, frame: pd.DataFrame) -> View:
    found: list[dict[str, Scalar]] = pa.Table.from_pandas(frame, preserve_index=False).to_pylist()
    rows = {str(row["key"]): row for row in found}
    document = results.suites.get(suite)
    named = _asked([_named(cell, rows) for cell in document.cells]) if document else []
    known = {cell.key for cell in named}
    strays = [_stray(row) for key, row in rows.items() if key not in known]
    if document is None:
        named, strays = strays, []
    return View(
        suite,
        document or SuiteRecord(name=suite),
        document is not None,
        results.environments.get(environment) or Environment(id=environment),
        tuple(cell for cell in named if cell.role != "trial"),
        tuple(cell for cell in named if cell.role == "trial"),
        tuple(strays),
        _rows(results.epochs, suite, environment),
        _rows(results.steps, suite, environment),
    )


def _asked(cells: list[Cell]) -> list[Cell]:
    """Without the seeds of which nothing was measured: a run may ask for the first few (``--seeds``).

    Of a run that was stopped all are asked for.
    """
    if any(cell.status == "interrupted" for cell in cells):
        return cells
    measured = {cell.seed for cell in cells if cell.row}
    return [cell for cell in cells if cell.seed in measured] if measured else cells


def _rows(frame: pd.DataFrame, suite: str, environment: str) -> Rows:
    return Rows(frame[(frame["suite"] == suite) & (frame["environment"] == environment)])


def _named(cell: CellRecord, rows: Mapping[str, Mapping[str, Scalar]]) -> Cell:
    row = rows.get(cell.key, {})
    whole = _integer(cell.epochs, 0) or None
    return Cell(cell.key, cell.label or str(row.get("label") or "?"), cell.settings, cell.role or "final", row, whole)


def _stray(row: Mapping[str, Scalar]) -> Cell:
    settings = json.loads(str(row["settings"]))
    return Cell(str(row["key"]), str(row["label"] or "?"), settings, str(row["role"] or "final"), row)
