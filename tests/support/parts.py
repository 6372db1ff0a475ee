"""Blocks of made-up cells for the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bnpbench.records.documents import Details, Environment, Hardware, Software
from bnpbench.results import Results, Store
from bnpbench.results.schema import digest

ENVIRONMENT = Environment(
    id="0123456789ab", hardware=Hardware(cpu="x"), software=Software(), measurement=1, details=Details()
)
Block = tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]


def block(*numbers: int, run: int = 0, epochs: int = 2, steps: int = 0, status: str = "ok", name: str = "b") -> Block:
    """Cells with these numbers as settings; ``run`` tells two measurements of them apart."""
    identity = f"{name}{'-'.join(map(str, numbers))}"
    cells, rows, probes = [], {}, {}
    for number in numbers:
        key, canonical = hashed(number)
        cells.append(
            {
                "key": key,
                "block": identity,
                "settings": canonical,
                "status": status,
                "label": f"run {run}",
                "finished": datetime(2026, 1, 1 + run, tzinfo=UTC),
            }
        )
        rows[key] = [{"epoch": e, "train_seconds": float(run)} for e in range(1, epochs + 1)]
        probes[key] = [{"epoch": 1, "step": s, "layer": "l", "preconditioner": "batch"} for s in range(steps)]
    return cells, rows, probes


def hashed(number: int) -> tuple[str, str]:
    """Key and canonical JSON."""
    canonical = json.dumps({"number": number})
    return hashlib.sha256(canonical.encode()).hexdigest()[:12], canonical


def identity_of(made: Block) -> str:
    """The block's id."""
    return str(made[0][0]["block"])


def canonicals(made: Block) -> dict[str, str]:
    """Key to canonical JSON."""
    return {cell["key"]: cell["settings"] for cell in made[0]}


def store(out: Path, suite: str = "made") -> Store:
    """A store under ``out``."""
    return Store(out, suite, ENVIRONMENT).create()


def written(out: Path, blocks: Sequence[Block]) -> Store:
    """A store with these blocks."""
    made = store(out)
    for one in blocks:
        made.write_block(*one)
    return made


KEY = hashed(1)[0]


def reasons(results: Results) -> dict[str, str]:
    """Of what was left out, by the file's name."""
    return {path.name: reason for path, reason in results.damaged}


def three(out: Path) -> Path:
    """A folder with a block of two cells and a block of one; the path of the first cell's part."""
    return written(out, [block(1, 2, steps=1), block(3)]).folder / "cells" / f"{KEY}.parquet"


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """Writes a part anew, with the metadata it had."""
    metadata = pq.read_metadata(path).metadata
    table = change(pq.read_table(path))
    pq.write_table(table.replace_schema_metadata(metadata), path, **options)


def column(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """A change of a part: one value in all rows of a column."""

    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(name)
        kind = table.schema.field(name).type
        return table.set_column(index, name, pa.array([value] * len(table), kind))

    return change


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table], **metadata: str) -> None:
    """Writes a part anew as the program with these columns would have, with what its footer said beside."""
    table = change(pq.read_table(path))
    footer = {name.decode(): text.decode() for name, text in pq.read_metadata(path).metadata.items()}
    footer |= {"columns": digest(table.column_names), **metadata}
    pq.write_table(table.replace_schema_metadata(footer), path, compression="none")
