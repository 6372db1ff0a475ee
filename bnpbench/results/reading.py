"""Reading results: whatever cannot be trusted is named, and never fatal."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pydantic import ValidationError

from bnpbench.cache import expanded
from bnpbench.errors import NothingToCompare, ResultsError
from bnpbench.records.documents import Environment, SuiteRecord
from bnpbench.records.rows import own_numbers
from bnpbench.results.folder import read_environment
from bnpbench.results.part import DamagedError, read_json
from bnpbench.results.schema import SCHEMAS
from bnpbench.text import number_of, plain

if TYPE_CHECKING:
    import pandas as pd

ENVIRONMENT_BYTES = 2**20  # of an environment.json; ours take a few thousand, with the machine's rates


@dataclass(frozen=True, eq=False)
class Results:
    """What was measured.

    Attributes:
        cells: a row of CELLS per cell, with ``suite`` and ``environment`` in front. Arrow dtypes: null is not NaN.
        epochs: rows of EPOCHS of these cells, with the same two columns, by cell and epoch.
        steps: rows of STEPS of these cells, with the same two columns.
        environments: by their ids.
        suites: by their names.
        damaged: path and reason of everything that was left out.
        unknown: columns, and fields of documents, that were left out of what was read, as ``cells.colour``: this
            version has none of their name.
    """

    cells: pd.DataFrame
    epochs: pd.DataFrame
    steps: pd.DataFrame
    environments: dict[str, Environment] = field(default_factory=dict)
    suites: dict[str, SuiteRecord] = field(default_factory=dict)
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    unknown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """What was measured, in ten lines at most."""
        of = self.cells.groupby(["suite", "environment"])["status"]
        counts = {"cell": len(self.cells), "epoch": len(self.epochs), "suite": len(self.suites)}
        lines = [", ".join(number_of(count, noun) for noun, count in counts.items())]
        for (suite, environment), statuses in of:
            told = ", ".join(f"{count} {status}" for status, count in statuses.value_counts().items())
            lines.append(f"  {plain(str(suite))} in environment {environment}: {told}")
        more = [f"  and {len(lines) - 7} more"] if len(lines) > 7 else []
        left_out = [f"left out: {number_of(len(self.damaged), 'file')} (.damaged says why)"] if self.damaged else []
        ways = ["frame() has a row an epoch, with the settings that vary; cells, epochs and steps are the tables"]
        return "\n".join([*lines[:7], *more, *left_out, *ways])

    def frame(self, *, trials: bool = False) -> pd.DataFrame:
        """Everything in one tidy frame, but for the trials of ``[select]``, which only choose a setting.

        Args:
            trials: have them too, and a column ``trial`` that is true of their rows.

        Returns:
            A row an epoch, and one for a cell without any: ``suite``, ``environment``, ``key``, ``method`` (its label),
            ``batch_size``, ``seed``, ``status``, ``method_state_bytes``, ``optimizer_state_bytes``, the settings that
            vary by their dotted names, and the columns of epochs (times in seconds, shares as such), one for each of
            the suites' own metrics among them. Null where nothing was measured.
        """
        import pandas as pd  # whoever finds no results needs none, and it takes a while

        whole = {cell.key: cell.settings for suite in self.suites.values() for cell in suite.cells}
        measured = self.cells.assign(trial=self._of_trials())
        if not trials:
            measured = measured[~measured.pop("trial")].reset_index(drop=True)
        settings = pd.json_normalize(
            [
                whole.get(key) or json.loads(text)
                for key, text in zip(measured["key"], measured["settings"], strict=True)
            ]
        )
        known = settings.columns.isin(["batch_size", "seed", "method.kind", "method.label"])
        varying = settings.loc[:, (settings.astype(str).nunique() > 1) & ~known]
        names = ["suite", "environment", "key", "label", "batch_size", "seed", "status"]
        names += ["method_state_bytes", "optimizer_state_bytes"]
        names += ["trial"] if trials else []
        cells = pd.concat([measured[names].rename(columns={"label": "method"}), varying], axis=1)
        epochs = self.epochs.drop(columns=["block", "turn", "metrics"])
        own = [own_numbers(text) for text in self.epochs["metrics"]]
        for name in dict.fromkeys(name for row in own for name in row):
            numbers = pa.array([row.get(name) for row in own], pa.float64())
            epochs[name] = pd.Series(pd.arrays.ArrowExtensionArray(numbers), index=epochs.index)
        return cells.merge(epochs, how="left", on=["suite", "environment", "key"])

    def _of_trials(self) -> list[bool]:
        """Of each cell, whether it only serves to choose a setting: as its suite says now, else as it was measured."""
        roles = {(name, cell.key): cell.role for name, suite in self.suites.items() for cell in suite.cells}
        rows = zip(self.cells["suite"], self.cells["key"], self.cells["role"], strict=True)
        return [roles.get((suite, key), role) == "trial" for suite, key, role in rows]

    def of_suites(self, names: Collection[str]) -> Results:
        """The results of these suites alone; what is damaged or unknown stays named.

        Args:
            names: of the suites; others are left out.

        Returns:
            New tables.
        """
        suites = {name: document for name, document in self.suites.items() if name in names}
        return self._picked(lambda frame: frame["suite"].isin(list(names)), suites)

    def of_cells(self, keys: Collection[str]) -> Results:
        """The results of these cells alone, the claims and figures that rest on them, and what ``of_suites`` leaves.

        Args:
            keys: of the cells; others are left out.

        Returns:
            New tables.
        """
        suites = {name: document.of_cells(keys) for name, document in self.suites.items()}
        there = {name: document for name, document in suites.items() if document.cells}
        return self._picked(lambda frame: frame["key"].isin(list(keys)), there)

    def _picked(self, rows: Callable[[pd.DataFrame], pd.Series[bool]], suites: dict[str, SuiteRecord]) -> Results:
        cells, epochs, steps = (
            frame[rows(frame)].reset_index(drop=True) for frame in (self.cells, self.epochs, self.steps)
        )
        return Results(cells, epochs, steps, self.environments, suites, self.damaged, self.unknown)


def read_results(*directories: str | Path) -> Results:
    """Reads one or several folders of results, each as ``run --out`` wrote it.

    A suite of several folders (shards) is one suite; its ``suite.json`` is that of the folder named last. A cell
    measured in several folders counts once, as measured last.

    Args:
        directories: one or several.

    Returns:
        Tables of cells, epochs and probed steps, and what the suites and the machines were.

    Raises:
        ResultsError: a folder is not there.
        NothingToCompare: there are no results in any of them.
    """
    if not directories:
        raise ResultsError("no folder of results was named")
    folders = [expanded(directory) for directory in directories]
    for directory in folders:
        if not directory.is_dir():
            raise ResultsError(f"{directory}: there is no such folder of results; name one that `bnpbench run` wrote")
    reading = _Reading()
    for directory in folders:
        try:
            reading.damaged += [(path, "a symbolic link; none is followed") for path in linked(directory)]
            for suite_folder in _suite_folders(directory):
                reading.read_suite(suite_folder)
        except OSError as error:
            raise ResultsError(f"{error.filename or directory}: cannot be read ({error.strerror or error})") from error
    if not (reading.tables["cells"] or reading.suites or reading.damaged):
        places = ", ".join(map(str, folders))
        raise NothingToCompare(f"{places}: no results in here; write some with `bnpbench run SUITE --out FOLDER`")
    return reading.results()


def environment_folders(directory: Path) -> Iterator[Path]:
    """The folders of results, one for each suite and environment; links are not followed, see ``linked``."""
    for suite_folder in _suite_folders(directory):
        yield from filter(_is_environment, _folders(suite_folder))


def linked(directory: Path) -> Iterator[Path]:
    """The symbolic links in place of folders of results below a folder, which may be a link itself."""
    suites = _folders(directory)
    for folder in (directory, *suites, *(inner for suite in suites for inner in _folders(suite))):
        for path in sorted(path for path in folder.iterdir() if path.is_symlink() and path.is_dir()):
            if _is_suite(path) or _is_environment(path) or (path.name in SCHEMAS and _is_environment(folder)):
                yield path


def _suite_folders(directory: Path) -> Iterator[Path]:
    """The folder itself when it is one suite's, else those of its subfolders that are."""
    if _is_suite(directory):
        yield directory
    else:
        yield from filter(_is_suite, _folders(directory))


def _is_suite(folder: Path) -> bool:
    return (folder / "suite.json").is_file() or any(_is_environment(inner) for inner in _folders(folder))


def _is_environment(folder: Path) -> bool:
    return (folder / "environment.json").is_file() or (folder / "cells").is_dir()


def _folders(directory: Path) -> list[Path]:
    found = (path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path for path in found if not path.name.startswith("."))


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.tables: dict[str, list[pa.Table]] = {kind: [] for kind in SCHEMAS}
        self.environments: dict[str, Environment] = {}
        self.suites: dict[str, SuiteRecord] = {}
        self.damaged: list[tuple[Path, str]] = []
        self.unknown: set[str] = set()
        self.folders = 0

    def read_suite(self, folder: Path) -> None:
        name = unquote(folder.name.encode(errors="replace").decode())
        if (path := folder / "suite.json").exists():
            try:
                document = _suite_document(path, self.unknown)
                name = document.name
                self.suites[name] = document
            except DamagedError as reason:
                self.damaged.append((path, str(reason)))
        for inner in environment_folders(folder):
            self.read_environment(name, inner)

    def read_environment(self, suite: str, folder: Path) -> None:
        identity = folder.name
        try:
            told = read_json(folder / "environment.json", ENVIRONMENT_BYTES)
            if told.get("id") != identity:
                raise DamagedError(f"its id is {str(told.get('id'))[:40]!r}, its folder is {identity!r}")
            self.environments[identity] = Environment.read(told, self.unknown)
        except DamagedError as reason:
            self.damaged.append((folder / "environment.json", str(reason)))
            self.environments.setdefault(identity, Environment(id=identity))
        self.folders += 1
        for kind, table in read_environment(folder, self.damaged, self.unknown).items():
            if len(table):
                self.tables[kind].append(_placed(table, suite, identity, self.folders))

    def results(self) -> Results:
        whole = {kind: _concatenated(self.tables[kind], SCHEMAS[kind]) for kind in SCHEMAS}
        cells = self._once(whole["cells"])
        if len(cells) < len(whole["cells"]):
            whole |= {kind: _of_cells(whole[kind], cells) for kind in ("epochs", "steps")}
        place = ["suite", "environment", "key"]
        return Results(
            _frame(cells, []),
            _frame(whole["epochs"], [*place, "epoch"]),
            _frame(whole["steps"], [*place, "epoch", "step", "preconditioner"]),
            self.environments,
            self.suites,
            sorted(self.damaged, key=lambda entry: str(entry[0])),
            tuple(sorted(self.unknown)),
        )

    def _once(self, cells: pa.Table) -> pa.Table:
        """Of a cell that several folders hold, the one whose block was finished last."""
        identity = ["suite", "environment", "key"]
        if self.folders < 2 or cells.group_by(identity).aggregate([]).num_rows == cells.num_rows:
            return cells
        frame = cells.select([*identity, "block", "place", "finished"]).to_pandas()
        block = ["suite", "environment", "block", "place"]
        frame["last"] = frame.groupby(block, dropna=False)["finished"].transform("max")
        frame = frame.sort_values("last", kind="stable", na_position="first")
        chosen = frame.drop_duplicates(identity, keep="last").index
        for index in frame.index.difference(chosen):
            suite, environment, key = (str(frame[name][index]) for name in identity)
            place = Path(suite) / environment / "cells" / f"{key}.parquet"
            self.damaged.append((place, "measured in several folders; the one measured last is shown"))
        return cells.take(pa.array(sorted(chosen)))


def _suite_document(path: Path, unknown: set[str]) -> SuiteRecord:
    try:
        return SuiteRecord.read(read_json(path), unknown)
    except ValidationError as error:
        place = [*error.errors(include_url=False, include_input=False)[0]["loc"], "name"][0]
        raise DamagedError(_REFUSED.get(str(place), "a suite without a name").format(place)) from None


_LIST, _TABLE = "its {0} are not what a suite.json holds", "its {0} is not a table"
_REFUSED = {"cells": _LIST, "references": _LIST, "claims": _LIST, "targets": "its targets are not numbers"}
_REFUSED |= {"measure": _TABLE, "shortened": _TABLE}


def _concatenated(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables or [_placed(schema.empty_table(), "", "", 0)]).combine_chunks()


def _placed(table: pa.Table, suite: str, environment: str, folder: int) -> pa.Table:
    """With the columns that say where the rows were read."""
    for position, (name, value) in enumerate({"suite": suite, "environment": environment, "place": folder}.items()):
        table = table.add_column(position, name, pa.repeat(pa.scalar(value), len(table)))
    return table


def _of_cells(rows: pa.Table, cells: pa.Table) -> pa.Table:
    """The rows that belong to cells: the others lie in a folder whose cell was measured again elsewhere."""
    place = ["suite", "environment", "key", "place"]
    return rows.join(cells.select(place), keys=place, join_type="left semi")


def _frame(table: pa.Table, order: list[str]) -> pd.DataFrame:
    import pandas as pd

    columns = [name for name in table.column_names if name != "place"]
    ordered = table.sort_by([(name, "ascending") for name in order]) if order else table
    frame: pd.DataFrame = ordered.select(columns).to_pandas(types_mapper=pd.ArrowDtype)
    return frame
