"""Made-up results with exact times, written through the store and read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bnpbench.records.documents import Environment
from bnpbench.results import Results, Store, read_results

HARDWARE = {"cpu": "Made-up CPU", "cores": 2, "gpu": None, "gpus": 0}
SOFTWARE = {"torch": "2.14.1", "python": "3.11"}
ENVIRONMENT = Environment.model_validate(
    {
        "id": "0123456789ab",
        "hardware": HARDWARE,
        "software": {"torch": "2.14.1"},
        "measurement": 1,
        "details": {},
    }
)
Epochs = Sequence[Mapping[str, Any]]


def hashed(data: Any) -> tuple[str, str]:
    """Key and canonical JSON."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12], canonical


def epochs(seconds: Sequence[float], accuracy: Sequence[float] = (), **columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of epochs from columns; accuracy may be left out."""
    rows: list[dict[str, Any]] = [{"epoch": epoch, "train_seconds": s} for epoch, s in enumerate(seconds, 1)]
    for name, values in {"test_accuracy": accuracy, **columns}.items():
        for row, value in zip(rows, values, strict=False):
            row[name] = value
    return rows


class Made:
    """A suite with made-up measurements.

    Its ``document`` and ``environment`` are written as they are in the end: they may be a stranger's.
    """

    def __init__(self, out: Path, name: str = "made", *, hardware: Any = HARDWARE, software: Any = SOFTWARE) -> None:
        self.out = out
        identity = hashed([hardware, software])[0]
        self.store = Store(out, name, Environment(id=identity)).create()
        self.environment = {"id": identity, "hardware": hardware, "software": software, "measurement": 1, "details": {}}
        self.document: dict[str, Any] = {
            "schema_version": 1,
            "name": name,
            "source": "a fake clock",
            "measure": {"interleave": ["method"], "warmup_epochs": 1},
            "targets": [],
            "references": [],
            "claims": [],
            "shortened": None,
            "cells": [],
        }
        self._blocks: dict[Any, list[tuple[dict[str, Any], Epochs, Epochs]]] = {}

    def cell(
        self,
        method: str,
        batch_size: int = 16,
        seed: int = 1,
        rows: Epochs | None = None,
        *,
        steps: Epochs = (),
        alone: bool = False,
        label: str | None = None,
        role: str = "final",
        settings: Mapping[str, Any] | None = None,
        in_suite: bool = True,
        **columns: Any,
    ) -> str:
        """Adds a cell and returns its key; without rows and status it is in the suite and not measured."""
        if rows is not None and not alone:
            rows = [{"turn": number, **row} for number, row in enumerate(rows, 1)]
        whole = {
            "dataset": {"kind": "digits"},
            "network": {"kind": "fc", "hidden": [100]},
            "method": {"kind": method},
            "batch_size": batch_size,
            "seed": seed,
            **(settings or {}),
        }
        key, canonical = hashed(whole)
        place: Any = key if alone else (batch_size, seed, json.dumps(whole["network"]))
        block = hashed(["block", place])[0]
        name = label or method
        if in_suite:
            self.document["cells"].append({"key": key, "label": name, "block": block, "role": role, "settings": whole})
        if rows is not None or "status" in columns:
            row = {
                "key": key,
                "label": name,
                "block": block,
                "role": role,
                "settings": canonical,
                "method": method,
                "batch_size": batch_size,
                "seed": seed,
                "engine": "eager",
                "engine_active": "eager",
                "device": "cpu",
                "status": "ok",
                "bnpbench": "0.1.0",
                "finished": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                **columns,
            }
            self._blocks.setdefault(place, []).append((row, rows or (), steps))
        return key

    def claim(
        self, metric: str, question: str, left: Sequence[str], right: Sequence[str] | None = None, **more: Any
    ) -> None:
        """Adds a claim about the cells with these keys, one for each seed, as suite.json holds it."""
        bounds = {name: more.pop(name, None) for name in ("at_least", "at_most")}
        at, where = more.pop("at", "last"), more.pop("where", {})
        sides = {"left": left} if right is None else {"left": left, "right": right}
        ats = {name: more.pop(f"{name}_at", at) for name in sides}
        self.document["claims"].append(
            {
                "says": more.pop("says", f"{question} of {metric}"),
                "metric": metric,
                "target": more.pop("target", None),
                "question": question,
                "bounds": bounds,
                **{name: {"pattern": {}, "at": ats[name]} for name in sides},
                "where": where,
                "combinations": [
                    {
                        "where": where,
                        **{name: {str(n): k for n, k in enumerate(keys, 1)} for name, keys in sides.items()},
                    }
                ],
            }
        )
        assert not more

    def read(self) -> Results:
        """Writes everything and reads it back."""
        (self.store.suite_folder / "suite.json").write_text(json.dumps(self.document))
        (self.store.folder / "environment.json").write_text(json.dumps(self.environment))
        for members in self._blocks.values():
            self.store.write_block(
                [row for row, _, _ in members],
                {row["key"]: rows for row, rows, _ in members},
                {row["key"]: steps for row, _, steps in members},
            )
        return read_results(self.out)
