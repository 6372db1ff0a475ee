"""Merging parts into one file a table: thousands of small files take longer to open than to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from bnpbench.errors import ResultsError
from bnpbench.records.documents import Environment
from bnpbench.results.folder import parts_of, read_environment
from bnpbench.results.part import replacing
from bnpbench.results.reading import environment_folders, linked
from bnpbench.results.schema import SCHEMAS
from bnpbench.results.store import Store
from bnpbench.text import some


def compact(directory: Path, told: Callable[[int, int, str], None] = lambda done, of, doing: None) -> dict[Path, int]:
    """Merge the whole cells of every folder under a folder of results; what is damaged stays.

    Whenever it is interrupted, the same cells are read as before: the merged files are there before a part goes.

    Args:
        directory: the folder of results.
        told: is told how many of the parts are merged and gone, of how many, and in which folder.

    Returns:
        The number of cells that were merged, by the environment's folder.

    Raises:
        ResultsError: there is no such folder, nothing can be written there, or something would be lost.
    """
    if not directory.is_dir():
        raise ResultsError(f"{directory}: there is no such folder of results; name one that `bnpbench run` wrote")
    for path in linked(directory):
        raise ResultsError(f"{path}: a symbolic link, and nothing is merged through one; remove it, or name its target")
    folders = list(environment_folders(directory))
    parts = {folder: sum(len(parts_of(folder / kind)) for kind in SCHEMAS) for folder in folders}
    done, merged = 0, {}
    for folder in folders:

        def gone(count: int, before: int = done, folder: Path = folder) -> None:
            told(before + count, sum(parts.values()), folder.name)

        gone(0)
        merged[folder] = _compact(folder, gone)
        done += parts[folder]
    return merged


def _compact(folder: Path, gone: Callable[[int], None]) -> int:
    store = Store(folder.parent.parent, unquote(folder.parent.name), Environment(id=folder.name))
    store.tidy()
    with store.alone():  # a run that commits waits
        damaged: list[tuple[Path, str]] = []
        unknown: set[str] = set()
        tables = read_environment(folder, damaged, unknown)
        _refuse_to_lose(folder, damaged, unknown)
        for kind in ("epochs", "steps", "cells"):  # those of the cells count, and come last
            _write(folder / f"{kind}.parquet", tables[kind], SCHEMAS[kind])
        keys = tables["cells"].column("key").to_pylist()
        needless = set(keys) - {path.stem for path, _ in damaged if path.parent == folder / "cells"}
        count = 0
        for kind in ("cells", "epochs", "steps"):
            for key in needless & set(parts_of(folder / kind)):
                (folder / kind / f"{key}.parquet").unlink()
                count += 1
                gone(count)
        return len(keys)


def _refuse_to_lose(folder: Path, damaged: list[tuple[Path, str]], unknown: set[str]) -> None:
    if unknown:
        raise ResultsError(
            f"{folder}: columns that this bnpbench does not know would be lost: {some(sorted(unknown))}. Nothing was "
            "merged: leave the parts as they are, they are read either way, or merge them with the bnpbench that wrote "
            "them"
        )
    for path, reason in damaged:
        if path.parent == folder:
            raise ResultsError(
                f"{path}: {reason}. Nothing was merged, because writing it anew would lose what is in it: restore the "
                "file, or move it away with the two beside it and run its cells again"
            )


def _write(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    metadata = {name.decode(): text.decode() for name, text in (schema.metadata or {}).items()}
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(
            temporary, table.schema, store_schema=False, write_page_checksum=True, compression="zstd"
        ) as writer,
    ):
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
