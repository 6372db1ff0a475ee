"""The three tables of results as Arrow schemas, made from the classes of their rows.

Results outlive the code. A column may come or go: it is null in the parts that lack it, and left out of those that
have it still. Where a column's meaning changes, ``SCHEMA_VERSION`` rises and ``UPGRADES`` says how to read older parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from bnpbench.records.rows import ROWS, columns

SCHEMA_VERSION = 1

FINISHED = frozenset({"ok", "diverged", "not-applicable"})  # the next run leaves these alone
STATUSES = FINISHED | {"oom", "timeout", "crashed", "interrupted", "error"}


def digest(names: Iterable[str]) -> str:
    """Of a part's columns, kept in its footer: nothing else in a part would tell that a name there was altered."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


_TYPES = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def _schema(row: type) -> pa.Schema:
    """The columns of a class of ``records.rows``, all nullable: a part may lack what a row is nothing without."""
    found = {name: _TYPES[column.type] for name, column in columns(row).items()}
    return pa.schema(list(found.items()), metadata={"schema_version": str(SCHEMA_VERSION), "columns": digest(found)})


SCHEMAS: dict[str, pa.Schema] = {kind: _schema(row) for kind, row in ROWS.items()}
NEEDED = frozenset(name for row in ROWS.values() for name, column in columns(row).items() if column.needed)
CELLS, EPOCHS, STEPS = SCHEMAS["cells"], SCHEMAS["epochs"], SCHEMAS["steps"]


@dataclass(frozen=True)
class Upgrade:
    """How parts of one ``schema_version`` become parts of the next.

    Attributes:
        schemas: ``cells``, ``epochs`` and ``steps`` to the columns that the earlier version had; those of a part are
            checked against them, and the ones that it lacks are null.
        change: takes which of the three, and a table with these columns; gives one with the meaning of the next
            version, where columns may come and go as always.
    """

    schemas: Mapping[str, pa.Schema]
    change: Callable[[str, pa.Table], pa.Table]


UPGRADES: dict[int, Upgrade] = {}
"""By the version that is read. Each stays for good, with a part of its version among the tests' files."""


def schema_of(kind: str, version: int) -> pa.Schema:
    """The columns that a table had in a version. Raises KeyError where that is not read."""
    return SCHEMAS[kind] if version == SCHEMA_VERSION else UPGRADES[version].schemas[kind]


def upgraded(kind: str, table: pa.Table, version: int) -> pa.Table:
    """A table of some version, with columns of that version alone, as the present one has it."""
    for earlier in range(version, SCHEMA_VERSION):
        whole = _filled(table, UPGRADES[earlier].schemas[kind])
        table = UPGRADES[earlier].change(kind, whole)
    return _filled(table, SCHEMAS[kind])


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the columns of the schema, in its order; null where the table has none."""
    nothing = {field.name: pa.nulls(len(table), field.type) for field in schema if field.name not in table.schema.names}
    columns = [nothing[name] if name in nothing else table.column(name) for name in schema.names]
    return pa.table(columns, schema=schema.remove_metadata())
