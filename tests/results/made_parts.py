"""Blocks of made-up cells for the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bnpbench.results import Store

ENVIRONMENT = {"id": "0123456789ab", "hardware": {"cpu": "x"}, "software": {}, "measurement": 1, "details": {}}
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
