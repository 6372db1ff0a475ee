"""``run --fail-on-claims`` was decided by what another machine had measured into the same folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.command import SUITE, bnpbench, suite

CLAIM = """
[[claim]]
says = "it learns something"
left = { method = "bnp" }
metric = "test_accuracy"
value = { at_least = 0.0 }
"""
OTHER = "0123456789ab"


def test_this_machine_s_claims_decide(tmp_path: Path) -> None:
    run = ("run", suite(tmp_path, SUITE + CLAIM), "--quiet", "--fail-on-claims")
    assert bnpbench(*run, cwd=tmp_path).returncode == 0
    (here,) = (path.parent for path in tmp_path.glob("results/tiny/*/environment.json"))
    there = shutil.copytree(here, here.with_name(OTHER))
    environment = json.loads((here / "environment.json").read_text())
    (there / "environment.json").write_text(json.dumps({**environment, "id": OTHER}))
    cells = {cell["key"]: cell["label"] for cell in json.loads((here.parent / "suite.json").read_text())["cells"]}
    for part in (there / "cells").glob("*.parquet"):
        if cells[part.stem] == "bnp":
            part.unlink()
    assert bnpbench("report", "--fail-on-claims", cwd=tmp_path).returncode == 4
    done = bnpbench(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no data" in done.stdout
