"""Merging parts into one file a table: thousands of small files take longer to open than to read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bnpbench.errors import ResultsError
from bnpbench.results.folder import read_environment
from bnpbench.results.part import discard, sync
from bnpbench.results.reading import environment_folders
from bnpbench.results.schema import CELLS, SCHEMAS
from bnpbench.results.store import Store, writing


def compact(directory: Path) -> dict[Path, int]:
    """Merge the whole cells of every folder under a folder of results; what is damaged or being measured stays.

    Whenever it is interrupted, the same cells are read as before: the merged files are there before a part goes.

    Returns:
        The number of cells that were merged, by the environment's folder.

    Raises:
        ResultsError: there is no such folder, or nothing can be written there.
    """
    if not directory.is_dir():
        raise ResultsError(f"{directory}: there is no such folder of results; name one that `bnpbench run` wrote")
    return {folder: _compact(folder) for folder in environment_folders(directory)}


def _compact(folder: Path) -> int:
    store = Store(folder.parent.parent, unquote(folder.parent.name), {"id": folder.name})
    with ExitStack() as stack:
        blocks = {block for cell in _tables(folder)["cells"].select(["block"]).to_pylist() if (block := cell["block"])}
        held = [block for block in blocks if stack.enter_context(store.lock(block, wait=False))]
        tables = _tables(folder)  # again: a run may have written before its lock was ours
        cells = tables["cells"]
        parts = pa.array([path.stem for path in (folder / "cells").glob("*.parquet")], pa.string())
        merged = pc.invert(pc.is_in(cells.column("key"), parts))  # before; they stay whoever holds their block
        ours = pc.or_(merged, pc.is_in(cells.column("block"), pa.array(held, pa.string())))
        keys = cells.filter(ours).column("key")
        with writing(folder):
            for kind in ("epochs", "steps", "cells"):  # as in a commit, cells last
                _write(folder / f"{kind}.parquet", tables[kind].filter(pc.is_in(tables[kind].column("key"), keys)))
            sync(folder)
            for kind in ("cells", "epochs", "steps"):
                for key in keys.to_pylist():
                    (folder / kind / f"{key}.parquet").unlink(missing_ok=True)
                sync(folder / kind)
        return len(keys)


def _tables(folder: Path) -> dict[str, pa.Table]:
    found = read_environment(folder, [])
    return {kind: pa.concat_tables([schema.empty_table(), *found[kind]]) for kind, schema in SCHEMAS.items()}


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        metadata = {name.decode(): text.decode() for name, text in (CELLS.metadata or {}).items()}
        with pq.ParquetWriter(
            temporary, table.schema, store_schema=False, write_page_checksum=True, compression="zstd"
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(metadata)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        discard(temporary)
        raise
