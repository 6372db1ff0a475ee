"""One environment's folder: which cells in it are whole, and what else lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from bnpbench.results.part import DamagedError, members, promised_rows, read_part
from bnpbench.results.schema import SCHEMAS, STATUSES
from bnpbench.text import number_of, short_hash

T = TypeVar("T")

COMMIT = "commit"  # a folder of parts, see ``committed``
PARTIAL = ".partial"  # of the epochs so far of a cell that is still being measured, after the key
_TRIES = 5  # of a folder that changes while it is read


def read_environment(folder: Path, damaged: list[tuple[Path, str]], unknown: set[str]) -> dict[str, pa.Table]:
    """The whole cells of a folder with their epochs and steps; everything else goes to ``damaged``.

    The names of columns that are in none of the schemas go to ``unknown``; their values are not read.

    What looks damaged or was merged meanwhile is read again while a run commits or compacts: it may have been moved.
    """
    for _ in range(_TRIES):
        merged, before, found = _stamp(folder / "cells.parquet"), _state(folder), list[tuple[Path, str]]()
        tables = _read(folder, found, unknown)
        if _stamp(folder / "cells.parquet") == merged and (not found or _state(folder) == before):
            break
    damaged += found
    return tables


def _read(folder: Path, damaged: list[tuple[Path, str]], unknown: set[str]) -> dict[str, pa.Table]:
    compacted = _read_compacted(folder, damaged, unknown)
    merged = set(compacted["cells"].column("key").to_pylist())
    parts = {kind: parts_of(folder / kind) | committed(folder, kind) for kind in SCHEMAS}
    cells: dict[str, _Promise] = {}
    tables = {"cells": _gathered(_committed(parts["cells"], merged, cells, damaged, unknown), SCHEMAS["cells"])}
    counts: dict[str, dict[str, int]] = {}
    known = merged.union(parts["cells"])
    for kind in ("epochs", "steps"):
        wanted = [parts[kind][key] for key, cell in cells.items() if cell.rows[kind] and key in parts[kind]]
        reader = partial(_rows_part, kind=kind, cells=cells, unknown=unknown)
        tables[kind] = _gathered((table for _, table in _read_all(wanted, reader, damaged)), SCHEMAS[kind])
        counts[kind] = {row["values"]: row["counts"] for row in tables[kind].column("key").value_counts().to_pylist()}
        strays = sorted(key for key in parts[kind] if key.removesuffix(PARTIAL) not in known)
        damaged += [(parts[kind][key], "unfinished: rows of a cell that was not measured to its end") for key in strays]
    whole = [key for key, cell in cells.items() if _is_whole(parts["cells"][key], cell, cells, counts, damaged)]
    return {
        kind: pa.concat_tables(
            [table.filter(with_key(table, whole)), compacted[kind].filter(pc.invert(with_key(compacted[kind], whole)))]
        )
        for kind, table in tables.items()
    }


def with_key(table: pa.Table, keys: Iterable[str]) -> pa.ChunkedArray:
    """Which rows have one of these keys."""
    return pc.is_in(table.column("key"), pa.array(keys, pa.string()))


def parts_of(folder: Path) -> dict[str, Path]:
    """Key to path. Names that begin with a dot are being written."""
    if folder.is_symlink() or not folder.is_dir():
        return {}
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet") and not name.startswith("."))
    return {name.removesuffix(".parquet"): folder / name for name in names}


def committed(folder: Path, kind: str) -> dict[str, Path]:
    """The parts of a block that was measured whole and is not in its place yet; they count, not those they replace."""
    return {} if (folder / COMMIT).is_symlink() else parts_of(folder / COMMIT / kind)


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


def _gathered(tables: Iterator[pa.Table], schema: pa.Schema) -> pa.Table:
    """One table of many, some at a time: a table of one row takes 50 times the memory of the row."""
    gathered = [schema.empty_table()]
    while some := list(islice(tables, 256)):
        gathered.append(pa.concat_tables(some).combine_chunks())
    return pa.concat_tables(gathered).combine_chunks()


class _Promise(NamedTuple):
    block: str | None
    commit: str | None  # which its epochs and steps, and its block's other cells, share
    members: list[str]  # keys of its block
    rows: dict[str, int]  # how many epochs and steps belong to it


def _cells_part(path: Path, unknown: set[str]) -> tuple[pa.Table, _Promise]:
    table, metadata, others = read_part(path, "cells")
    unknown.update(others)
    if len(table) != 1:
        raise DamagedError(f"{number_of(len(table), 'row')}, a cell is one")
    _check_cells(table.column("key"), table.column("settings"), table.column("status"))
    if (key := table.column("key")[0].as_py()) != path.stem:
        raise DamagedError(f"it holds cell {key}")
    block = table.column("block")[0].as_py()
    return table, _Promise(block, metadata.get("commit"), members(metadata), promised_rows(metadata))


def _check_cells(keys: pa.ChunkedArray, settings: pa.ChunkedArray, statuses: pa.ChunkedArray) -> None:
    for key, canonical, status in zip(keys.to_pylist(), settings.to_pylist(), statuses.to_pylist(), strict=True):
        if canonical is None or short_hash(canonical) != key:
            raise DamagedError(f"its settings hash to {short_hash(canonical or '')}, its key is {str(key)[:40]}")
        if status not in STATUSES:
            raise DamagedError(f"no status is called {str(status)[:40]!r}")
        try:
            well_formed = isinstance(json.loads(canonical), dict)
        except (ValueError, RecursionError):
            well_formed = False
        if not well_formed:
            raise DamagedError("its settings are not a JSON object")


def _rows_part(path: Path, kind: str, cells: Mapping[str, _Promise], unknown: set[str]) -> pa.Table:
    table, metadata, others = read_part(path, kind)
    unknown.update(others)
    if (keys := pc.unique(table.column("key")).to_pylist()) != [path.stem]:
        raise DamagedError(f"it holds rows of {', '.join(str(key)[:40] for key in keys[:3]) or 'no cell'}")
    if metadata.get("commit") != cells[path.stem].commit:
        raise DamagedError("its rows are of another measurement than its cell")
    return table


def _committed(
    paths: Mapping[str, Path],
    merged: Set[str],
    cells: dict[str, _Promise],
    damaged: list[tuple[Path, str]],
    unknown: set[str],
) -> Iterator[pa.Table]:
    """The readable cells whose block was committed whole, each a row; what was promised of them goes to ``cells``."""
    for path, (table, cell) in _read_all(paths.values(), partial(_cells_part, unknown=unknown), damaged):
        if missing := [key for key in cell.members if key not in paths and key not in merged]:
            reason = f"unfinished: its block lacks {', '.join(missing[:3])}; the next run measures it again"
            damaged.append((path, reason))
        else:
            cells[path.stem] = cell
            yield table


def _is_whole(
    path: Path,
    cell: _Promise,
    cells: Mapping[str, _Promise],
    counts: Mapping[str, Mapping[str, int]],
    damaged: list[tuple[Path, str]],
) -> bool:
    others = [other for key in cell.members if (other := cells.get(key)) and other.block == cell.block]
    if any(other.commit != cell.commit for other in others):
        damaged.append((path, "left out: the cells of its block are of several measurements"))
        return False
    for kind, promised in cell.rows.items():
        found = counts[kind].get(path.stem, 0)
        if found != promised:
            damaged.append((path, f"left out: {promised} rows of {kind} belong to it, {found} could be read"))
            return False
    return True


def _read_compacted(folder: Path, damaged: list[tuple[Path, str]], unknown: set[str]) -> dict[str, pa.Table]:
    """What was merged into one file a table. That of the cells comes last and goes first: the others count with it."""
    tables = {kind: schema.empty_table() for kind, schema in SCHEMAS.items()}
    if not (folder / "cells.parquet").exists():
        return tables
    for kind in SCHEMAS:
        path = folder / f"{kind}.parquet"
        try:
            table, _, others = read_part(path, kind, compacted=True)
            if kind == "cells":
                _check_cells(table.column("key"), table.column("settings"), table.column("status"))
        except DamagedError as reason:
            damaged.append((path, f"left out with all that was merged: {reason}"))
            return {kind: schema.empty_table() for kind, schema in SCHEMAS.items()}
        unknown.update(others)
        tables[kind] = table
    keys = tables["cells"].column("key").to_pylist()
    return {kind: table.filter(with_key(table, keys)) for kind, table in tables.items()}


def _state(folder: Path) -> list[tuple[int, int] | None]:
    """What changes when a part comes, goes or is replaced."""
    folders = [folder, folder / COMMIT, *(place / kind for place in (folder, folder / COMMIT) for kind in SCHEMAS)]
    return [_stamp(path) for path in folders]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
