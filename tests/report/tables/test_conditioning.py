"""Condition numbers from made-up steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.report import render
from tests.support.made_results import Made, epochs


def test_medians_over_iterations_of_each_preconditioner(make: Callable[..., Made]) -> None:
    made = make()
    for seed in (1, 2):
        steps = [
            {
                "epoch": 1,
                "step": step,
                "layer": "output",
                "neuron": 0,
                "preconditioner": kind,
                "kappa_hessian": 1000.0 * step * seed,
                "kappa_gain": None if step == 3 else 2.0 * seed,
                "gain_over_kappa_d_squared": 1e-4,
                "rank": 59,
            }
            for step in (1, 2, 3)
            for kind in ("batch", "batch_damped")
        ]
        made.cell("bnp", 60, seed, epochs([1.0] * 6), steps=steps)
    text = render(made.read())
    row = next(line for line in text.splitlines() if line.startswith("| bnp") and "| batch " in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "bnp", "60", "batch", "3,000 (2,000–4,000)", "– (none known)", "3 (2–4)", "– (none known)",
        "1.00e-04 (1.0e-04–1.0e-04)", "59 (59–59)", "– (none known)",
    ]  # fmt: skip
    assert "| batch, damped" in text


def test_a_suite_without_a_probe_has_no_such_table(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6))
    assert "Condition numbers" not in render(made.read())


# A large condition number of one seed was printed with a range, and its record did not say of how many it was.


@pytest.mark.regression
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
