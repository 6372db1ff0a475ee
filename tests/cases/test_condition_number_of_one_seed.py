"""A large condition number of one seed was printed with a range, and its record did not say of how many it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bnpbench.report import render
from tests.support.made_results import Made, epochs


@pytest.mark.parametrize(
    ("seeds", "kappa", "text"),
    [(1, 2e6, "2.00e+06 (n = 1)"), (1, 1e-3, "1.00e-03 (n = 1)"), (2, 2e6, "2.00e+06 (2.0e+06–2.0e+06)")],
)
def test_one_seed_has_no_range(tmp_path: Path, seeds: int, kappa: float, text: str) -> None:
    made = Made(tmp_path)
    for seed in range(1, seeds + 1):
        steps = [{"epoch": 1, "step": step, "preconditioner": "batch", "kappa_d": kappa} for step in (1, 2, 3)]
        made.cell("bnp", seed=seed, rows=epochs([1.0]), steps=steps)
    (chapter,) = json.loads(render(made.read(), "json"))
    (section,) = [section for section in chapter["sections"] if section["title"] == "Condition numbers"]
    (table,) = section["tables"]
    assert text in table["rows"][0]
    (record,) = [record for record in table["records"] if record["quantity"] == "kappa_d, batch"]
    assert (record["value"], record["n"]) == (kappa, seeds)
