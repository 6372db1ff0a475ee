"""What a file of results may claim, for it may be a stranger's: no small one fills the memory or keeps us busy."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PART_BYTES, _COMPACTED_BYTES = 2**20, 2**24  # that any file may unpack to: there may be thousands of parts
_RATIO = 300  # unpacked to packed: cells that differ in their seeds alone reach 40 when zstd has packed their settings
_COUNT = 2**53  # up to which a float64, as which columns are averaged and drawn, holds every whole number


def allowed_bytes(size: int, compacted: bool) -> int:
    """How many bytes a file of so many may unpack to."""
    return (_COMPACTED_BYTES if compacted else _PART_BYTES) + _RATIO * size


def too_large(footer: pq.FileMetaData, schema: pa.Schema, limit: int) -> str | None:
    """Why a file is not read that unpacks to more bytes than the limit, as its own footer says; None: it does not.

    Nulls and repeated values cost a file nothing and the memory a place in every row; texts are weighed when they are
    read, see ``texts_bytes``.
    """
    pages = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
    places = footer.num_rows * sum(4 if pa.types.is_string(field.type) else 8 for field in schema)
    if (unpacked := max(pages, places)) <= limit:
        return None
    return f"the footer promises {unpacked} bytes, more than the {limit} that are read of a file of its size"


def texts_bytes(table: pa.Table) -> int:
    """The length of all texts of a table that was read with its texts as dictionaries."""
    found = 0
    for column in table.columns:
        for chunk in column.chunks if pa.types.is_dictionary(column.type) else ():
            chunk.validate(full=True)
            found += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
    return found


def impossible(table: pa.Table) -> str | None:
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
