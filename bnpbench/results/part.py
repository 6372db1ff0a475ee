"""One Parquet part: written atomically, and read with suspicion.

A part may come from a stranger or a dying disk: what its footer says is checked before its pages are read, pages carry
checksums, no small file fills the memory or keeps us busy, and every fault is one exception, ``DamagedError``, that
names the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bnpbench.files import fresh
from bnpbench.results.schema import NEEDED, SCHEMA_VERSION, UPGRADES, digest, schema_of, upgraded

PART_BYTES = 64 * 2**20
COMPACTED_BYTES = 4 * 2**30
_PART_ROWS = 2**20
_COMPACTED_ROWS = 2**28
_SMALL_FILE = 2**14  # even the best compression cannot make these a danger
_UNPACKED, _COMPACTED_UNPACKED = 2**20, 2**24  # bytes that any file may unpack to: there may be thousands of parts
_RATIO = 300  # unpacked to packed: cells that differ in their seeds alone reach 40 when zstd has packed their settings
_COUNT = 2**53  # up to which a float64, as which columns are averaged and drawn, holds every whole number


class DamagedError(Exception):
    """A part that is truncated, altered, foreign or not whole; the text is the reason."""


class NewerError(DamagedError):
    """A part that a newer bnpbench wrote: nothing is wrong with it, and nothing may be written over it."""


class Part(NamedTuple):
    """What was read of a file.

    Attributes:
        table: its rows, with the columns of the present schema.
        metadata: its footer's.
        unknown: its other columns, as ``cells.colour``; they were not read.
    """

    table: pa.Table
    metadata: dict[str, str]
    unknown: tuple[str, ...]


def write_part(
    path: Path, rows: Sequence[Mapping[str, object]], schema: pa.Schema, metadata: Mapping[str, str]
) -> None:
    """Writes and syncs a part under a name that nobody reads yet.

    Raises:
        ValueError, TypeError, OverflowError: the rows do not fit the schema, see ``table_of``.
        OSError: the disk is full, the folder read-only.
    """
    table = table_of(rows, schema)
    # Small parts: dictionaries, statistics and a second schema would be most of the file and of its reading time.
    options = {"compression": "none", "use_dictionary": len(rows) > 100, "write_statistics": False}
    with pq.ParquetWriter(path, schema, store_schema=False, write_page_checksum=True, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**_text(schema.metadata), **metadata})
    sync(path)


def table_of(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of results; what a row lacks is null.

    Raises:
        ValueError, TypeError, OverflowError: the schema has no such column, or no place for such a value in it.
    """
    if unknown := sorted({name for row in rows for name in row} - set(schema.names)):
        raise ValueError(f"there is no column {', '.join(unknown)} beside {', '.join(schema.names[:3])}")
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the temporary name under which a file is written; at the end it takes the place of ``path``.

    The name is always the same, so that what a killed process left under it is written over: hold the lock of
    whoever else writes there.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield fresh(temporary)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        discard(temporary)
        raise
    sync(path.parent)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces ``path`` atomically; see ``replacing``. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path, limit: int = PART_BYTES) -> dict[str, Any]:
    """Reads a JSON object. Raises DamagedError."""
    try:
        _check_file(path, limit)
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"not readable as JSON: {_short(error)}") from None
    if not isinstance(document, dict):
        raise DamagedError("not a JSON object")
    return document


def read_part(path: Path, kind: str, *, compacted: bool = False) -> Part:
    """Reads a part of any version up to this one's; columns that it lacks are null.

    Args:
        path: the file.
        kind: cells, epochs or steps.
        compacted: many parts in one file: larger limits, any compression.

    Raises:
        DamagedError: the file cannot be trusted; the text says why.
    """
    try:
        size = _check_file(path, COMPACTED_BYTES if compacted else PART_BYTES)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = _text(file.metadata.metadata)
            version = _version(metadata)
            schema = schema_of(kind, version)
            known, unknown = _columns(file.schema_arrow, schema, metadata)
            _check_footer(file.metadata, schema, size, compacted)
            rows, limit = file.metadata.num_rows, _allowed_bytes(size, compacted)
            dubious = rows * max(size, file.metadata.serialized_size) > limit
            table = None if dubious else file.read(known.names, use_threads=False)
        if table is None:
            table = _read_dictionaries(path, known, limit)
        table.validate(full=True)  # UTF-8 and offsets
        table = upgraded(kind, table, version)
        if reason := _impossible(table):
            raise DamagedError(reason)
    except DamagedError:
        raise
    except Exception as error:  # bytes from anywhere: pyarrow raises OSError, ArrowException, ValueError and others
        raise DamagedError(f"not readable as Parquet: {_short(error)}") from None
    if table.num_rows != rows:
        raise DamagedError(f"the footer promises {rows} rows, the pages hold {table.num_rows}")
    return Part(table, metadata, tuple(f"{kind}.{name}" for name in unknown))


def refuse_newer(path: Path) -> None:
    """Raises NewerError where a newer bnpbench wrote the part; one that is damaged or not there is none of that."""
    try:
        _check_file(path, COMPACTED_BYTES)
        metadata = _text(pq.read_metadata(path).metadata)
    except Exception:  # bytes from anywhere, as in ``read_part``
        return
    _check_newer(metadata)


def promised_rows(metadata: Mapping[str, str]) -> dict[str, int]:
    """How many rows of epochs and steps belong to a cell, from its part's footer. Raises DamagedError."""
    whole = _whole(metadata)
    counts = {kind: whole.get(kind) for kind in ("epochs", "steps")}
    if not all(isinstance(count, int) for count in counts.values()):
        raise DamagedError("its footer does not say how many rows belong to the cell")
    return {kind: int(count) for kind, count in counts.items() if count is not None}


def members(metadata: Mapping[str, str]) -> list[str]:
    """The keys of all cells of a cell's block, from its part's footer. Raises DamagedError."""
    keys = _whole(metadata).get("members")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise DamagedError("its footer does not name the members of the block")
    return keys


def sync(path: Path) -> None:
    """Flushes a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Removes a file if it is there and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink()


def _whole(metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        whole = json.loads(metadata.get("whole", "{}"))
    except (ValueError, RecursionError):
        whole = {}
    return whole if isinstance(whole, dict) else {}


def _check_file(path: Path, limit: int) -> int:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError("not a regular file")
    if status.st_size > limit:
        raise DamagedError(f"{status.st_size} bytes, more than the {limit} that are read")
    return status.st_size


def _version(metadata: Mapping[str, str]) -> int:
    """Of the schema that the part was written with. Raises DamagedError where this bnpbench does not read it."""
    _check_newer(metadata)
    version = metadata.get("schema_version", "missing")
    for known in (*UPGRADES, SCHEMA_VERSION):
        if version == str(known):
            return known
    raise DamagedError(f"schema_version {version[:40]}, this bnpbench reads {SCHEMA_VERSION}")


def _check_newer(metadata: Mapping[str, str]) -> None:
    version = metadata.get("schema_version", "")
    if version.isdecimal() and int(version[:9]) > SCHEMA_VERSION:
        raise NewerError(f"schema_version {version[:9]}: a newer bnpbench wrote it, this one reads {SCHEMA_VERSION}")


def _columns(found: pa.Schema, schema: pa.Schema, metadata: Mapping[str, str]) -> tuple[pa.Schema, list[str]]:
    """The columns of a part that its schema has, and the names of the others.

    Raises:
        DamagedError: one of them is of another type or place, one that must be there is not, or the names are not those
            that the part was written with.
    """
    if metadata.get("columns", digest(found.names)) != digest(found.names):
        raise DamagedError("its columns are not those that it was written with")
    known = pa.schema([field for field in schema if field.name in found.names])
    if missing := sorted(NEEDED.intersection(schema.names).difference(known.names)):
        raise DamagedError(f"it has no column {', '.join(missing)}")
    if not pa.schema([field for field in found if field.name in schema.names]).equals(known):
        raise DamagedError("its columns are of other types, or in another order, than those of its schema")
    return known, [name for name in found.names if name not in schema.names]


def _check_footer(footer: pq.FileMetaData, schema: pa.Schema, size: int, compacted: bool) -> None:
    if footer.num_rows > (limit := _COMPACTED_ROWS if compacted else _PART_ROWS) or footer.num_rows < 0:
        raise DamagedError(f"the footer promises {footer.num_rows} rows, more than the {limit} that are read")
    if reason := _too_large(footer, schema, _allowed_bytes(size, compacted)):
        raise DamagedError(reason)
    if compacted:
        return
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    if (unpacked := sum(group.total_byte_size for group in groups)) > PART_BYTES:
        raise DamagedError(f"the footer promises {unpacked} bytes, more than the {PART_BYTES} that are read")
    if size <= _SMALL_FILE:
        return
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    if packed := sorted({column.compression for column in columns} - {"UNCOMPRESSED"}):
        raise DamagedError(f"compressed with {', '.join(packed)}; parts are not compressed")


def _read_dictionaries(path: Path, known: pa.Schema, limit: int) -> pa.Table:
    """Strings as dictionaries first: their decoded size is known before it is spent."""
    strings = [field.name for field in known if pa.types.is_string(field.type)]
    with pq.ParquetFile(path, read_dictionary=strings, page_checksum_verification=True) as file:
        table = file.read(known.names, use_threads=False)
    if (decoded := _texts_bytes(table)) > limit:
        raise DamagedError(f"its texts unpack to {decoded} bytes, more than the {limit} that are read")
    return table.cast(known)


def _text(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


# --- what a file may claim ----------------------------------------------------------------------------------------


def _allowed_bytes(size: int, compacted: bool) -> int:
    """How many bytes a file of so many may unpack to."""
    return (_COMPACTED_UNPACKED if compacted else _UNPACKED) + _RATIO * size


def _too_large(footer: pq.FileMetaData, schema: pa.Schema, limit: int) -> str | None:
    """Why a file is not read that unpacks to more bytes than the limit, as its own footer says; None: it does not.

    Nulls and repeated values cost a file nothing and the memory a place in every row; texts are weighed when they are
    read, see ``_texts_bytes``.
    """
    pages = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
    places = footer.num_rows * sum(4 if pa.types.is_string(field.type) else 8 for field in schema)
    if (unpacked := max(pages, places)) <= limit:
        return None
    return f"the footer promises {unpacked} bytes, more than the {limit} that are read of a file of its size"


def _texts_bytes(table: pa.Table) -> int:
    """The length of all texts of a table that was read with its texts as dictionaries."""
    found = 0
    for column in table.columns:
        for chunk in column.chunks if pa.types.is_dictionary(column.type) else ():
            chunk.validate(full=True)
            found += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
    return found


def _impossible(table: pa.Table) -> str | None:
    """Which whole number of a table nothing can have, if any: one below 0 or beyond 2⁵³, an epoch beyond its rows.

    A row of ``steps`` stands for itself, and its epoch may come after any number of others.
    """
    for field in table.schema if len(table) else ():
        if field.type != pa.int64():
            continue
        of_epochs = field.name == "epoch" and "step" not in table.column_names
        low, high = (1, len(table)) if of_epochs else (0, _COUNT)
        for value in pc.min_max(table.column(field.name)).as_py().values():
            if value is not None and not low <= value <= high:
                return f"{field.name} {value}, which is not from {low} to {high}"
    return None
