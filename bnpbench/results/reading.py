"""Reading results: whatever cannot be trusted is named, and never fatal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from bnpbench.errors import NothingToCompare, ResultsError
from bnpbench.results.part import DamagedError, key_of, members, promised_rows, read_json, read_part
from bnpbench.results.schema import CELLS, SCHEMAS, STATUSES

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Results:
    """What was measured.

    Attributes:
        cells: a row of CELLS per cell, with ``suite`` and ``environment`` in front. Arrow dtypes: null is not NaN.
        epochs: rows of EPOCHS of these cells, with the same two columns, by cell and epoch.
        steps: rows of STEPS of these cells, with the same two columns.
        environments: environment id to what ``environment.json`` holds.
        suites: suite name to what ``suite.json`` holds.
        damaged: path and reason of everything that was left out.
    """

    cells: pd.DataFrame
    epochs: pd.DataFrame
    steps: pd.DataFrame
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    suites: dict[str, dict[str, Any]] = field(default_factory=dict)
    damaged: list[tuple[Path, str]] = field(default_factory=list)

    def of_suites(self, names: Collection[str]) -> Results:
        """The results of these suites alone; what is damaged stays named."""
        cells, epochs, steps = (
            frame[frame["suite"].isin(list(names))].reset_index(drop=True)
            for frame in (self.cells, self.epochs, self.steps)
        )
        suites = {name: document for name, document in self.suites.items() if name in names}
        return Results(cells, epochs, steps, self.environments, suites, self.damaged)


def read_results(*directories: str | Path) -> Results:
    """Reads one or several folders of results, each as ``run --out`` wrote it.

    A suite of several folders (shards) is one suite; its ``suite.json`` is that of the folder named last. A cell
    measured in several folders counts once, as measured last.

    Raises:
        ResultsError: a folder is not there.
        NothingToCompare: there are no results in any of them.
    """
    if not directories:
        raise ResultsError("no folder of results was named")
    for directory in directories:
        if not Path(directory).is_dir():
            raise ResultsError(f"{directory}: there is no such folder of results; name one that `bnpbench run` wrote")
    reading = _Reading()
    for directory in directories:
        try:
            for suite_folder in _suite_folders(Path(directory)):
                reading.read_suite(suite_folder)
        except OSError as error:
            raise ResultsError(f"{error.filename or directory}: cannot be read ({error.strerror or error})") from error
    if not (reading.tables["cells"] or reading.suites or reading.damaged):
        places = ", ".join(str(directory) for directory in directories)
        raise NothingToCompare(f"{places}: no results in here; write some with `bnpbench run SUITE --out FOLDER`")
    return reading.results()


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
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.tables: dict[str, list[pa.Table]] = {kind: [] for kind in SCHEMAS}
        self.environments: dict[str, dict[str, Any]] = {}
        self.suites: dict[str, dict[str, Any]] = {}
        self.damaged: list[tuple[Path, str]] = []
        self.folders = 0

    def read_suite(self, folder: Path) -> None:
        name = unquote(folder.name, errors="surrogatepass")
        if (path := folder / "suite.json").exists():
            try:
                document = _suite_document(path)
                name = document["name"]
                self.suites[name] = document
            except DamagedError as reason:
                self.damaged.append((path, str(reason)))
        for inner in filter(_is_environment, _folders(folder)):
            self.read_environment(name, inner)

    def read_environment(self, suite: str, folder: Path) -> None:
        identity = folder.name
        try:
            document = read_json(folder / "environment.json")
            if document.get("id") != identity:
                raise DamagedError(f"its id is {str(document.get('id'))[:40]!r}, its folder is {identity!r}")
            self.environments[identity] = document
        except DamagedError as reason:
            self.damaged.append((folder / "environment.json", str(reason)))
            self.environments.setdefault(identity, {"id": identity})
        self.folders += 1
        for kind, tables in _read_environment(folder, self.damaged).items():
            if tables:
                self.tables[kind].append(_placed(pa.concat_tables(tables), suite, identity, self.folders))

    def results(self) -> Results:
        whole = {kind: _concatenated(self.tables[kind], SCHEMAS[kind]) for kind in SCHEMAS}
        cells = self._once(whole["cells"])
        keep = {kind: _of_cells(whole[kind], cells) for kind in ("epochs", "steps")}
        orders = {"epochs": ["suite", "environment", "key", "epoch"], "steps": ["suite", "environment", "key"]}
        frames = {kind: _frame(table).sort_values(orders[kind], kind="stable") for kind, table in keep.items()}
        return Results(
            _frame(cells).reset_index(drop=True),
            frames["epochs"].reset_index(drop=True),
            frames["steps"].reset_index(drop=True),
            self.environments,
            self.suites,
            sorted(self.damaged, key=lambda entry: str(entry[0])),
        )

    def _once(self, cells: pa.Table) -> pa.Table:
        """Of a cell that several folders hold, the one whose block was finished last."""
        identity = ["suite", "environment", "key"]
        if self.folders < 2 or cells.group_by(identity).aggregate([]).num_rows == cells.num_rows:
            return cells
        frame = cells.select([*identity, "block", "folder", "finished"]).to_pandas()
        block = ["suite", "environment", "block", "folder"]
        frame["last"] = frame.groupby(block, dropna=False)["finished"].transform("max")
        frame = frame.sort_values("last", kind="stable", na_position="first")
        chosen = frame.drop_duplicates(identity, keep="last").index
        for index in frame.index.difference(chosen):
            suite, environment, key = (str(frame[name][index]) for name in identity)
            place = Path(suite) / environment / "cells" / f"{key}.parquet"
            self.damaged.append((place, "measured in several folders; the one measured last is shown"))
        return cells.take(pa.array(sorted(chosen)))


def _suite_document(path: Path) -> dict[str, Any]:
    document = read_json(path)
    if not isinstance(document.get("name"), str) or not document["name"]:
        raise DamagedError("a suite without a name")
    shapes: dict[str, Callable[[Any], bool]] = {
        "cells": lambda cell: isinstance(cell.get("key"), str) and isinstance(cell.get("settings"), dict),
        "references": lambda reference: _all_of(str, reference.get("cells")),
        "claims": lambda claim: True,
    }
    for name, is_well_formed in shapes.items():
        items = document.setdefault(name, [])
        if not _all_of(dict, items) or not all(map(is_well_formed, items)):
            raise DamagedError(f"its {name} are not what a suite.json holds")
    if not _all_of(int | float, document.setdefault("targets", [])):
        raise DamagedError("its targets are not numbers")
    for name in ("measure", "shortened"):
        if not isinstance(document.get(name) or {}, dict):
            raise DamagedError(f"its {name} is not a table")
    return document


def _all_of(kind: Any, items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)


def _read_environment(folder: Path, damaged: list[tuple[Path, str]]) -> dict[str, list[pa.Table]]:
    """The whole cells of a folder with their epochs and steps; everything else goes to ``damaged``."""
    parts = {kind: _parts(folder / kind) for kind in SCHEMAS}
    cells = _committed(parts["cells"], damaged)
    tables: dict[str, dict[str, pa.Table]] = {}
    for kind in ("epochs", "steps"):
        wanted = [parts[kind][key] for key in cells if key in parts[kind]]
        reader = partial(_rows_part, schema=SCHEMAS[kind])
        tables[kind] = {path.stem: table for path, table in _read_all(wanted, reader, damaged)}
        strays = sorted(set(parts[kind]) - set(parts["cells"]))
        damaged += [(parts[kind][key], "unfinished: rows of a cell that was not measured to its end") for key in strays]
    whole = {key for key, cell in cells.items() if _is_whole(parts["cells"][key], cell, tables, damaged)}
    found = {"cells": [cells[key].table for key in cells if key in whole]}
    for kind in ("epochs", "steps"):
        found[kind] = [table for key, table in tables[kind].items() if key in whole]
    for kind, table in _read_compacted(folder, list(cells), damaged).items():
        found[kind].append(table)
    return found


def _parts(folder: Path) -> dict[str, Path]:
    """Key to path. Names that begin with a dot are being written."""
    if not folder.is_dir():
        return {}
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet") and not name.startswith("."))
    return {name.removesuffix(".parquet"): folder / name for name in names}


def _read_all(
    paths: Iterable[Path], reader: Callable[[Path], T], damaged: list[tuple[Path, str]]
) -> Iterator[tuple[Path, T]]:
    def attempt(path: Path) -> T | DamagedError:
        try:
            return reader(path)
        except DamagedError as reason:
            return reason

    paths = list(paths)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for path, part in zip(paths, pool.map(attempt, paths), strict=True):
            if isinstance(part, DamagedError):
                damaged.append((path, str(part)))
            else:
                yield path, part


class _Cell(NamedTuple):
    table: pa.Table
    members: list[str]  # keys of its block
    rows: dict[str, int]  # how many epochs and steps belong to it


def _cells_part(path: Path) -> _Cell:
    table, metadata = read_part(path, CELLS)
    if len(table) != 1:
        raise DamagedError(f"{len(table)} rows, a cell is one")
    _check_cells(table.column("key"), table.column("settings"), table.column("status"))
    if (key := table.column("key")[0].as_py()) != path.stem:
        raise DamagedError(f"it holds cell {key}")
    return _Cell(table, members(metadata), promised_rows(metadata))


def _check_cells(keys: pa.ChunkedArray, settings: pa.ChunkedArray, statuses: pa.ChunkedArray) -> None:
    for key, canonical, status in zip(keys.to_pylist(), settings.to_pylist(), statuses.to_pylist(), strict=True):
        if canonical is None or key_of(canonical) != key:
            raise DamagedError(f"its settings hash to {key_of(canonical or '')}, its key is {str(key)[:40]}")
        if status not in STATUSES:
            raise DamagedError(f"no status is called {str(status)[:40]!r}")
        try:
            well_formed = isinstance(json.loads(canonical), dict)
        except (ValueError, RecursionError):
            well_formed = False
        if not well_formed:
            raise DamagedError("its settings are not a JSON object")


def _rows_part(path: Path, schema: pa.Schema) -> pa.Table:
    table, _ = read_part(path, schema)
    if (keys := pc.unique(table.column("key")).to_pylist()) != [path.stem]:
        raise DamagedError(f"it holds rows of {', '.join(str(key)[:40] for key in keys[:3]) or 'no cell'}")
    return table


def _committed(paths: Mapping[str, Path], damaged: list[tuple[Path, str]]) -> dict[str, _Cell]:
    """The readable cells whose block was committed whole."""
    cells = {}
    for path, cell in _read_all(paths.values(), _cells_part, damaged):
        if missing := [key for key in cell.members if key not in paths]:
            reason = f"unfinished: its block lacks {', '.join(missing[:3])}; the next run measures it again"
            damaged.append((path, reason))
        else:
            cells[path.stem] = cell
    return cells


def _is_whole(
    path: Path, cell: _Cell, tables: Mapping[str, Mapping[str, pa.Table]], damaged: list[tuple[Path, str]]
) -> bool:
    for kind, promised in cell.rows.items():
        found = len(tables[kind][path.stem]) if path.stem in tables[kind] else 0
        if found != promised:
            damaged.append((path, f"left out: {promised} rows of {kind} belong to it, {found} could be read"))
            return False
    return True


def _read_compacted(folder: Path, newer: list[str], damaged: list[tuple[Path, str]]) -> dict[str, pa.Table]:
    """What was merged into one file a table, but for cells that were measured again since."""
    tables: dict[str, pa.Table] = {}
    for kind, schema in SCHEMAS.items():
        if (path := folder / f"{kind}.parquet").exists():
            try:
                table, _ = read_part(path, schema, compacted=True)
                if kind == "cells":
                    _check_cells(table.column("key"), table.column("settings"), table.column("status"))
            except DamagedError as reason:
                damaged.append((path, f"left out with all that was merged: {reason}"))
                return {}
            tables[kind] = table.filter(pc.invert(pc.is_in(table.column("key"), pa.array(newer, pa.string()))))
    return tables


def _concatenated(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables or [_placed(schema.empty_table(), "", "", 0)]).combine_chunks()


def _placed(table: pa.Table, suite: str, environment: str, folder: int) -> pa.Table:
    """With the columns that say where the rows were read."""
    for position, (name, value) in enumerate({"suite": suite, "environment": environment, "folder": folder}.items()):
        table = table.add_column(position, name, pa.repeat(pa.scalar(value), len(table)))
    return table


def _of_cells(rows: pa.Table, cells: pa.Table) -> pa.Table:
    """The rows that belong to cells: the others lie in a folder whose cell was measured again elsewhere."""
    place = ["suite", "environment", "key", "folder"]
    return rows.join(cells.select(place), keys=place, join_type="left semi")


def _frame(table: pa.Table) -> pd.DataFrame:
    columns = [name for name in table.column_names if name != "folder"]
    frame: pd.DataFrame = table.select(columns).to_pandas(types_mapper=pd.ArrowDtype)
    return frame
