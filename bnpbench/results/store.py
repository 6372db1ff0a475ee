"""Writing results: a block's parts appear whole or not at all, whatever dies in between."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import filelock

from bnpbench.errors import ResultsError
from bnpbench.results.part import DamagedError, discard, promised_rows, read_part, stage, sync, write_json
from bnpbench.results.schema import CELLS, EPOCHS, FINISHED, SCHEMAS

Row = Mapping[str, Any]
_WRITING = "writing"  # a lock beside those of the blocks: two of them may share a cell, as with --only


def check_writable(out: Path) -> None:
    """Raises ResultsError unless results can be written under ``out``, which need not exist; leaves nothing there."""
    place = Path(out).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise _unwritable(place, error) from error


class Store:
    """The folder of one suite in one environment, ``OUT/<suite>/<environment>/``; nothing is made before ``create``.

    Args:
        out: folder of all results.
        suite: the suite's name. Characters that are unsafe in a file name are percent-encoded, so no name
            leaves ``out``.
        environment: what ``environment.json`` holds; its ``id`` (12 hex digits) names the folder.

    Raises:
        ResultsError: the suite or the environment cannot name a folder.
    """

    def __init__(self, out: Path, suite: str, environment: Mapping[str, Any]) -> None:
        self.suite_folder = Path(out) / folder_name(suite)
        self.folder = self.suite_folder / _safe(str(environment["id"]))
        self.environment = environment

    def create(self) -> Self:
        """Make the folders, those that are not there, and write ``environment.json``. Raises ResultsError."""
        with writing(self.folder):
            for kind in (*SCHEMAS, "logs", "locks"):
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "environment.json", self.environment)
            sync(self.suite_folder)
            sync(self.suite_folder.parent)
        return self

    def write_suite(self, document: Row) -> None:
        """Replaces ``suite.json``: the resolved suite and the keys of all its cells. Raises ResultsError."""
        with writing(self.suite_folder):
            write_json(self.suite_folder / "suite.json", document)

    def finished(self, block: str, cells: Mapping[str, str]) -> bool:
        """Whether every cell of a block was measured, in this block, with the settings it has now.

        Args:
            block: the block's id.
            cells: key to canonical JSON, for every cell of the block.

        A damaged part, or one whose epochs are gone, counts as not measured.
        """
        return all(self._finished(block, key, canonical) for key, canonical in cells.items())

    def measured(self, key: str) -> bool:
        """Whether a cell was measured to its end, in whatever block."""
        if key in self._merged:
            return True
        try:
            table, _ = read_part(self._part("cells", key), CELLS)
            return table.column("status")[0].as_py() in FINISHED
        except (DamagedError, IndexError, OSError):
            return False

    @contextmanager
    def lock(self, block: str, *, wait: bool = True) -> Iterator[bool]:
        """Holds the block's flock, which the kernel frees when the process dies.

        Args:
            block: the block's id.
            wait: until the other run that holds it is done with the block.

        Yields:
            True while held; False, without ``wait``, when another process holds it.

        Raises:
            ResultsError: the lock file cannot be written.
        """
        path = self.folder / "locks" / f"{_safe(block)}.lock"
        lock = filelock.FileLock(path, timeout=-1 if wait else 0, thread_local=False)
        with writing(path), suppress(filelock.Timeout):
            lock.acquire()
        held = lock.is_locked
        try:
            yield held
        finally:
            if held:
                discard(path)  # while it is held: who waits finds the name gone and takes a new file
                lock.release()

    def write_block(
        self,
        cells: Sequence[Row],
        epochs: Mapping[str, Sequence[Row]] | None = None,
        steps: Mapping[str, Sequence[Row]] | None = None,
    ) -> None:
        """Commits a measured block, replacing what an earlier run left of it. Call it under the block's lock.

        Args:
            cells: a row of CELLS for every cell of the block, failed ones included; missing columns are null.
            epochs: key to the cell's rows of EPOCHS; ``key`` and ``block`` may be left out.
            steps: key to the cell's rows of STEPS; ``key`` may be left out.

        All parts are written and synced under temporary names first, so a full disk loses nothing; then the
        block's old cells go, and the new parts are renamed, cells last.

        Raises:
            ResultsError: nothing more can be written.
            ValueError: a row has an unknown column, or rows belong to no cell of the block.
        """
        rows: dict[str, Mapping[str, Sequence[Row]]] = {"epochs": epochs or {}, "steps": steps or {}}
        blocks = {str(cell["key"]): str(cell["block"]) for cell in cells}
        if strays := {key for table in rows.values() for key in table} - set(blocks):
            raise ValueError(f"rows of cells that the block lacks: {', '.join(sorted(strays))}")
        staged: dict[str, dict[str, Path]] = {kind: {} for kind in ("epochs", "steps", "cells")}
        with writing(self.folder), self.lock(_WRITING):
            try:
                for cell in cells:
                    key = str(cell["key"])
                    self._stage(
                        staged,
                        "epochs",
                        key,
                        [{"key": key, "block": blocks[key], **row} for row in rows["epochs"].get(key, ())],
                    )
                    self._stage(staged, "steps", key, [{"key": key, **row} for row in rows["steps"].get(key, ())])
                    whole = {"members": sorted(blocks)} | {
                        kind: len(table.get(key, ())) for kind, table in rows.items()
                    }
                    self._stage(staged, "cells", key, [cell], {"whole": json.dumps(whole)})
                self._commit(list(blocks), staged)
            finally:
                for temporary in (path for parts in staged.values() for path in parts.values()):
                    discard(temporary)

    def write_partial(self, key: str, epochs: Sequence[Row]) -> None:
        """Replaces the epochs so far of a cell that is still being measured. Raises ResultsError."""
        path = self._part("epochs", key, ".partial")
        with writing(path), self.lock(_WRITING):
            stage(path, [{"key": key, **row} for row in epochs], EPOCHS, {}).replace(path)
            sync(path.parent)

    def log_path(self, block: str) -> Path:
        """Where the child that measures a block writes its log."""
        return self.folder / "logs" / f"{_safe(block)}.log"

    def _finished(self, block: str, key: str, canonical: str) -> bool:
        if not self._part("cells", key).exists():
            return self._merged.get(key) == (block, canonical)
        try:
            table, metadata = read_part(self._part("cells", key), CELLS)
            row = table.select(["key", "block", "settings", "status"]).to_pylist()[0]
            if (row["key"], row["block"], row["settings"]) != (key, block, canonical) or row["status"] not in FINISHED:
                return False
            return all(self._rows(kind, key) == count for kind, count in promised_rows(metadata).items())
        except (DamagedError, IndexError):
            return False

    @cached_property
    def _merged(self) -> dict[str, tuple[str, str]]:
        """Key to block and canonical JSON of the finished cells that were merged into one file a table."""
        try:
            tables = {kind: self._read_merged(kind) for kind in SCHEMAS}
        except (DamagedError, OSError):
            return {}
        rows = tables["cells"].select(["key", "block", "settings", "status"]).to_pylist()
        return {row["key"]: (row["block"], row["settings"]) for row in rows if row["status"] in FINISHED}

    def _read_merged(self, kind: str) -> Any:
        return read_part(self.folder / f"{kind}.parquet", SCHEMAS[kind], compacted=True)[0]

    def _rows(self, kind: str, key: str) -> int:
        path = self._part(kind, key)
        return read_part(path, SCHEMAS[kind])[0].num_rows if path.exists() else 0

    def _stage(
        self,
        staged: dict[str, dict[str, Path]],
        kind: str,
        key: str,
        rows: Sequence[Row],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        if rows:
            staged[kind][key] = stage(self._part(kind, key), rows, SCHEMAS[kind], metadata or {})

    def _commit(self, keys: Sequence[str], staged: Mapping[str, Mapping[str, Path]]) -> None:
        for key in keys:  # a cell never stands beside another run's epochs
            self._part("cells", key).unlink(missing_ok=True)
        sync(self.folder / "cells")
        for kind, parts in staged.items():
            for key in keys:
                final = self._part(kind, key)
                if key in parts:
                    parts[key].replace(final)
                else:
                    final.unlink(missing_ok=True)
            sync(self.folder / kind)
        for key in keys:
            discard(self._part("epochs", key, ".partial"))

    def _part(self, kind: str, key: str, suffix: str = "") -> Path:
        return self.folder / kind / f"{_safe(key)}{suffix}.parquet"


def folder_name(suite: str) -> str:
    """The folder of a suite: its name, with what could leave the results folder percent-encoded."""
    try:
        name = quote(suite, safe=" +=,")
    except UnicodeEncodeError:
        name = ""
    if not name:
        raise ResultsError(f"a suite called {suite!r} can have no folder of results; give it another name")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _safe(name: str) -> str:
    """A hash as a file name; nothing that could be a path passes."""
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}", name):
        raise ResultsError(f"{name!r} is not a hash and cannot name a file of results")
    return name


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError into a ResultsError that names the place."""
    try:
        yield
    except OSError as error:
        raise _unwritable(error.filename or path, error) from error


def _unwritable(place: Path | str, error: OSError) -> ResultsError:
    reason = error.strerror or str(error)
    return ResultsError(
        f"{place}: results cannot be written here ({reason}); make room or choose another folder with --out"
    )
