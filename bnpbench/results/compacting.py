"""Merging parts into one file a table: thousands of small files take longer to open than to read."""

from __future__ import annotations

import resource
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bnpbench.errors import ResultsError
from bnpbench.results.folder import parts_of, read_environment, with_key
from bnpbench.results.part import discard, sync
from bnpbench.results.reading import environment_folders
from bnpbench.results.schema import CELLS
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
        stack.enter_context(store.lock("compact"))  # two at once would each leave out what the other merged
        before = _stamps(folder / "cells")
        damaged: list[tuple[Path, str]] = []
        tables = read_environment(folder, damaged)
        _refuse_to_lose(folder, damaged)
        cells = tables["cells"]
        blocks = pc.unique(cells.column("block")).drop_null().to_pylist()
        _allow_open_files(len(blocks))
        held = [block for block in blocks if stack.enter_context(store.lock(block, wait=False))]
        unread = {path.stem for path, _ in damaged if path.parent == folder / "cells"}  # the parts stay where they are
        # again: a run may have written before its lock was ours
        parts = {key: stamp for key, stamp in _stamps(folder / "cells").items() if key not in unread}
        merged = pc.invert(with_key(cells, parts))
        read = with_key(cells, (key for key, stamp in parts.items() if before.get(key) == stamp))
        ours = pc.is_in(cells.column("block"), pa.array(held, pa.string()))
        whole = pc.or_(merged, pc.and_(ours, read))
        keys = cells.filter(whole).column("key").to_pylist()
        with writing(folder):
            for kind in ("epochs", "steps", "cells"):  # as in a commit, cells last
                _write(folder / f"{kind}.parquet", tables[kind].filter(with_key(tables[kind], keys)))
            sync(folder)
            needless = set(cells.filter(pc.and_(whole, ours)).column("key").to_pylist()) - unread
            for kind in ("cells", "epochs", "steps"):
                for key in needless:
                    (folder / kind / f"{key}.parquet").unlink(missing_ok=True)
                sync(folder / kind)
        return len(keys)


def _refuse_to_lose(folder: Path, damaged: list[tuple[Path, str]]) -> None:
    for path, reason in damaged:
        if path.parent == folder:
            raise ResultsError(
                f"{path}: {reason}. Nothing was merged, because writing it anew would lose what is in it: restore the "
                "file, or move it away with the two beside it and run its cells again"
            )


def _allow_open_files(locks: int) -> None:
    """As many open files as there are locks to hold, if the system allows it; often it allows 1,024 until asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = locks + 256
    if soft < needed <= (hard if hard != resource.RLIM_INFINITY else needed):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Key to what tells a part from those that bore its name before."""
    found = {}
    for key, path in parts_of(folder).items():
        with suppress(FileNotFoundError):  # a run is replacing it
            status = path.stat()
            found[key] = status.st_ino, status.st_mtime_ns
    return found


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
