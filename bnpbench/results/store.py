"""Writing results: a block's parts appear whole or not at all, whatever dies in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote
from uuid import uuid4

import filelock
import pyarrow as pa

from bnpbench.errors import ResultsError
from bnpbench.records.documents import Environment, SuiteRecord
from bnpbench.records.rows import CellRow, EpochRow, StepRow
from bnpbench.results.folder import COMMIT, PARTIAL, committed, parts_of
from bnpbench.results.part import (
    DamagedError,
    NewerError,
    discard,
    promised_rows,
    read_json,
    read_part,
    refuse_newer,
    replacing,
    sync,
    write_json,
    write_part,
)
from bnpbench.results.schema import EPOCHS, FINISHED, SCHEMAS

_HASH = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
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
        environment: what ``environment.json`` holds; its id names the folder.

    Raises:
        ResultsError: the suite or the environment cannot name a folder.
    """

    def __init__(self, out: Path, suite: str, environment: Environment) -> None:
        self.suite_folder = Path(out) / folder_name(suite)
        self.folder = self.suite_folder / _safe(environment.id)
        self.environment = environment
        self._merged_stamp: tuple[int, ...] | None = None
        self._merged_cells: dict[str, tuple[str, str]] = {}

    def create(self) -> Self:
        """Make the folders, those that are not there, and write ``environment.json``. Raises ResultsError."""
        self.refuse_links()
        with writing(self.folder):
            for kind in (*SCHEMAS, "logs", "locks"):
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
        self.tidy()
        with self.alone():
            write_json(self.folder / "environment.json", self.environment.document())
            sync(self.suite_folder)
            sync(self.suite_folder.parent)
        return self

    def renew(self) -> None:
        """Tidy the folder, and write the peak rates of the machine down where they were measured since. It is there.

        Raises:
            ResultsError: nothing can be written here.
        """
        self.refuse_links()
        self.tidy()
        path, rates = self.folder / "environment.json", self.environment.rates
        with self.alone(), suppress(DamagedError):
            written = read_json(path)
            if rates is not None and written.get("rates") != rates.document():
                write_json(path, {**written, "rates": rates.document()})

    def refuse_links(self) -> None:
        """Raises ResultsError where one of the folders is a symbolic link: what it points to is none of these results.

        Everything is written under a lock, and every lock asks this first.
        """
        inner = (self.folder / name for name in (*SCHEMAS, "logs", "locks", "checkpoints"))
        for folder in (self.suite_folder, self.folder, *inner):
            if os.path.islink(folder):
                raise ResultsError(
                    f"{folder}: a symbolic link, and nothing is written through one; remove it, or name the folder "
                    "that it leads to instead of this one"
                )

    def tidy(self) -> None:
        """Removes what killed runs left: temporary files, locks, what was kept of cells that are finished now.

        Raises:
            ResultsError: nothing can be written here.
        """
        with self.alone():
            for folder in (self.folder, *(self.folder / kind for kind in SCHEMAS)):
                for temporary in folder.glob(".*.tmp"):  # all are written under this lock
                    discard(temporary)
            for kind in ("epochs", "steps"):
                for key in parts_of(self.folder / kind):
                    if key in self._merged and not self._part("cells", key).exists():  # a compaction was killed
                        discard(self._part(kind, key))
            for key in parts_of(self.folder / "epochs"):
                if (cell := key.removesuffix(PARTIAL)) != key and self._measured(cell):
                    discard(self._part("epochs", cell, PARTIAL))
            for path in self.folder.glob("checkpoints/*.pt"):
                if self._measured(path.stem):
                    discard(path)
        locks, states = self.folder.glob("locks/*.lock"), self.folder.glob("checkpoints/.*.tmp")
        for block in {path.stem.removeprefix(".") for path in (*locks, *states)}:
            if _HASH.fullmatch(block):
                with self.lock(block, wait=False) as held:  # which removes the file of a lock that nobody holds
                    if held:  # else the block is being measured
                        discard(self.checkpoint_temporary(block))

    def refuse_newer(self, keys: Iterable[str]) -> None:
        """Raises ResultsError where a newer bnpbench wrote one of these cells, or what was merged."""
        paths = [self._part(kind, key) for key in keys for kind in ("cells", "epochs", "steps")]
        for path in (*(self.folder / f"{kind}.parquet" for kind in SCHEMAS), *paths):
            try:
                refuse_newer(path)
            except NewerError as reason:
                raise _newer(path, str(reason)) from None

    def refuse_newer_suite(self, document: SuiteRecord) -> None:
        """Raises ResultsError where a newer bnpbench wrote the ``suite.json`` that this document would replace."""
        path, ours = self._document, document.schema_version
        try:
            theirs = read_json(path).get("schema_version")
        except DamagedError:
            return
        if isinstance(theirs, int) and isinstance(ours, int) and theirs > ours:
            raise _newer(path, f"schema_version {theirs}: a newer bnpbench wrote it, this one writes {ours}")

    def write_suite(self, document: SuiteRecord) -> None:
        """Replaces ``suite.json``: the resolved suite and the keys of all its cells. Raises ResultsError."""
        path = self._document
        self.refuse_links()
        self.refuse_newer_suite(document)
        with writing(self.suite_folder), _locked(path.with_name("suite.json.lock")):
            write_json(path, document.document())

    def finished(self, block: str, cells: Mapping[str, str]) -> bool:
        """Whether every cell of a block was measured, in this block, with the settings it has now.

        Args:
            block: the block's id.
            cells: key to canonical JSON, for every cell of the block.

        A damaged part, or one whose epochs are gone, counts as not measured.

        Raises:
            ResultsError: nothing can be written here.
        """
        if not self.folder.is_dir():
            return False
        with self.alone():  # else another run may be replacing or merging just these
            return all(self._finished(block, key, canonical) for key, canonical in cells.items())

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
        self.refuse_links()
        with _locked(self.folder / "locks" / f"{_safe(block)}.lock", wait=wait) as held:
            yield held

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process writes here meanwhile, and what one had committed when it died is in its place.

        Raises:
            ResultsError: nothing can be written here.
        """
        with writing(self.folder), self.lock(_WRITING):
            self._settle()
            yield

    def write_block(
        self,
        cells: Sequence[CellRow],
        epochs: Mapping[str, Sequence[EpochRow]] | None = None,
        steps: Mapping[str, Sequence[StepRow]] | None = None,
        *,
        over_finished: bool = True,
    ) -> None:
        """Commits a measured block, replacing what an earlier run left of it. Call it under the block's lock.

        Args:
            cells: a row for every cell of the block, failed ones included; missing columns are null.
            epochs: key to the cell's epochs; ``key`` and ``block`` may be left out.
            steps: key to what a probe found of the cell; ``key`` may be left out.
            over_finished: else nothing is written where one of the cells was measured to its end before, and what was
                kept of the new measurement goes.

        All parts are written and synced in a folder with a temporary name, which is then renamed: from that moment on
        readers take them instead of the old ones, which they replace one by one.

        Raises:
            ResultsError: nothing more can be written, or a newer bnpbench wrote what would be replaced.
            ValueError: a row has an unknown column, or rows belong to no cell of the block.
        """
        rows: dict[str, Mapping[str, Sequence[Mapping[str, object]]]] = {"epochs": epochs or {}, "steps": steps or {}}
        blocks = {str(cell["key"]): str(cell["block"]) for cell in cells}
        if strays := {key for table in rows.values() for key in table} - set(blocks):
            raise ValueError(f"rows of cells that the block lacks: {', '.join(sorted(strays))}")
        with self.alone():
            if not over_finished and any(self._measured(key) for key in blocks):
                for key, block in blocks.items():
                    self._forget(key, block)
                return
            self.refuse_newer(blocks)
            staged, commit = self.folder / f".{COMMIT}.tmp", {"commit": uuid4().hex}
            try:
                for kind in SCHEMAS:
                    (staged / kind).mkdir(parents=True)
                for cell in cells:
                    key = str(cell["key"])
                    counts = {kind: len(table.get(key, ())) for kind, table in rows.items()}
                    own: dict[str, Sequence[Mapping[str, object]]] = {
                        "epochs": [{"key": key, "block": blocks[key], **row} for row in rows["epochs"].get(key, ())],
                        "steps": [{"key": key, **row} for row in rows["steps"].get(key, ())],
                        "cells": [cell],
                    }
                    whole = {"whole": json.dumps({"members": sorted(blocks)} | counts)}
                    for kind, table in own.items():
                        if table:
                            path = staged / kind / f"{_safe(key)}.parquet"
                            write_part(path, table, SCHEMAS[kind], commit | (whole if kind == "cells" else {}))
                for kind in SCHEMAS:
                    sync(staged / kind)
                sync(staged)
                staged.rename(self.folder / COMMIT)
                sync(self.folder)
            except BaseException:
                _remove(staged)
                raise
            self._settle()

    def write_partial(self, key: str, epochs: Sequence[EpochRow]) -> None:
        """Replaces the epochs so far of a cell that is still being measured. Raises ResultsError."""
        with self.alone(), replacing(self._part("epochs", key, PARTIAL)) as temporary:
            write_part(temporary, [{"key": key, **row} for row in epochs], EPOCHS, {})

    def checkpoint(self, key: str) -> Path:
        """Where the state of a cell that is not measured to its end is kept."""
        return self.folder / "checkpoints" / f"{_safe(key)}.pt"

    def checkpoint_temporary(self, block: str) -> Path:
        """The name under which a state is written first: the block's, for its lock tells who may remove it."""
        return self.folder / "checkpoints" / f".{_safe(block)}.tmp"

    def log_path(self, block: str) -> Path:
        """Where the child that measures a block writes its log."""
        return self.folder / "logs" / f"{_safe(block)}.log"

    def _settle(self) -> None:
        """Put the committed block in its place, the cells last. Whoever dies here leaves the rest to the next one."""
        _remove(self.folder / f".{COMMIT}.tmp")
        commit = self.folder / COMMIT
        for key, path in committed(self.folder, "cells").items():
            discard(self._part("epochs", key, PARTIAL))
            with suppress(DamagedError):
                table, metadata, _ = read_part(path, "cells")
                row = table.select(["block", "status"]).to_pylist()[0]
                if row["status"] in FINISHED:
                    self._forget(key, str(row["block"]))
                for kind in (kind for kind, rows in promised_rows(metadata).items() if not rows):
                    self._part(kind, key).unlink(missing_ok=True)
        for kind in ("epochs", "steps", "cells"):
            if parts := committed(self.folder, kind):
                for path in parts.values():
                    path.replace(self.folder / kind / path.name)
                sync(self.folder / kind)
        _remove(commit)

    def _forget(self, key: str, block: str) -> None:
        """Remove what is kept of a cell only until it is measured to its end."""
        for path in (self._part("epochs", key, PARTIAL), self.checkpoint(key), self.checkpoint_temporary(block)):
            discard(path)

    def _measured(self, key: str) -> bool:
        """Whether a cell was measured to its end, in whatever block."""
        if (path := self._part("cells", key)).exists():
            with suppress(DamagedError, IndexError):
                return read_part(path, "cells").table.column("status")[0].as_py() in FINISHED
        return key in self._merged

    def _finished(self, block: str, key: str, canonical: str) -> bool:
        if not self._part("cells", key).exists():
            return self._merged.get(key) == (block, canonical)
        try:
            table, metadata, _ = read_part(self._part("cells", key), "cells")
            row = table.select(["key", "block", "settings", "status"]).to_pylist()[0]
            if (row["key"], row["block"], row["settings"]) != (key, block, canonical) or row["status"] not in FINISHED:
                return False
            promised = promised_rows(metadata)
            return all(self._rows(kind, key, metadata) == count for kind, count in promised.items() if count)
        except (DamagedError, IndexError):
            return False

    @property
    def _merged(self) -> dict[str, tuple[str, str]]:
        """Key to block and canonical JSON of the finished cells that were merged into one file a table."""
        try:
            status = (self.folder / "cells.parquet").stat()
        except OSError:
            return {}
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        if stamp != self._merged_stamp:  # another process may have merged more since
            self._merged_stamp, self._merged_cells = stamp, self._read_merged_cells()
        return self._merged_cells

    def _read_merged_cells(self) -> dict[str, tuple[str, str]]:
        try:
            tables = {kind: self._read_merged(kind) for kind in SCHEMAS}
        except (DamagedError, OSError):
            return {}
        rows = tables["cells"].select(["key", "block", "settings", "status"]).to_pylist()
        return {row["key"]: (row["block"], row["settings"]) for row in rows if row["status"] in FINISHED}

    def _read_merged(self, kind: str) -> pa.Table:
        return read_part(self.folder / f"{kind}.parquet", kind, compacted=True).table

    def _rows(self, kind: str, key: str, cell: Mapping[str, str]) -> int:
        """How many rows a cell has that were committed with it."""
        table, metadata, _ = read_part(self._part(kind, key), kind)
        return table.num_rows if metadata.get("commit") == cell.get("commit") else 0

    @property
    def _document(self) -> Path:
        return self.suite_folder / "suite.json"

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
    if not _HASH.fullmatch(name):
        raise ResultsError(f"{name!r} is not a hash and cannot name a file of results")
    return name


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds a flock; yields whether it is held, which without ``wait`` it may not be."""
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


def _remove(folder: Path) -> None:
    """Removes a folder, whatever is in it; of a link the link alone."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError into a ResultsError that names the place."""
    try:
        yield
    except OSError as error:
        raise _unwritable(error.filename or path, error) from error


def _newer(path: Path, reason: str) -> ResultsError:
    return ResultsError(
        f"{path}: {reason}. Nothing was written: install that bnpbench, or choose another folder with --out"
    )


def _unwritable(place: Path | str, error: OSError) -> ResultsError:
    reason = error.strerror or str(error)
    return ResultsError(
        f"{place}: results cannot be written here ({reason}); make room or choose another folder with --out"
    )
