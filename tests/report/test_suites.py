"""From a suite file to verdicts: the suite's own document, the store, the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench.records.documents import Environment, Hardware
from bnpbench.report import render, verdicts
from bnpbench.results import Store, read_results
from bnpbench.suite import load_suite

SUITE = """
name = "pairs"
[train]
dataset = "digits"
network = { kind = "fc", hidden = [100] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 6
[sweep]
method = ["vanilla", "bn", "bnp", { kind = "bnp", statistics = "batch" }]
batch_size = [16, 256]
seed = [1, 2]
[[override]]
when = { method = "bn" }
set = { optimizer.lr = 0.5 }
[measure]
interleave = ["method"]
[report]
targets = [0.5]
[[reference]]
cell = { method = "bn", batch_size = 16 }
metric = "train_seconds"
value = 16.08
source = "Table 1, V100"
[[claim]]
says = "BNP costs at most 1.2 times BN"
left = { method = { kind = "bnp", statistics = "running" } }
right = { method = "bn" }
where = { batch_size = [16, 256] }
metric = "train_seconds"
ratio = { at_most = 1.2 }
[[claim]]
says = "BNP gains from a larger batch"
left = { method = { kind = "bnp", statistics = "batch" }, batch_size = 256, at = "best" }
right = { method = { kind = "bnp", statistics = "batch" }, batch_size = 16, at = { epoch = 1 } }
metric = "test_accuracy"
difference = { at_least = 0.1 }
[[claim]]
says = "BN reaches 0.5"
left = { method = "bn" }
where = { batch_size = 16 }
metric = "reached"
target = 0.5
value = { at_least = 1 }
"""
NOISE = {1: 1 / 1.0005, 2: 1.0005}  # of BNP's ratios, seed by seed; their geometric mean is 1
SECONDS = {"vanilla": 1.0, "bn": 1.0, "bnp": 1.1, "bnp(statistics=batch)": 1.3}


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs.toml").write_text(SUITE)
    suite = load_suite(tmp_path / "pairs.toml")
    cells = suite.cells(device="cpu", threads=1)
    store = Store(tmp_path / "out", suite.name, Environment(id="0123456789ab", hardware=Hardware(cpu="x"))).create()
    store.write_suite(suite.document(cells))
    for block in suite.blocks(cells):
        rows, epochs = [], {}
        for cell in block.cells:
            own = {"label": cell.label, "block": block.id, "role": cell.role, "seed": cell.settings.seed}
            rows.append({"key": cell.key, "settings": cell.canonical, "status": "ok", **own})
            size, seed = cell.settings.batch_size, cell.settings.seed
            epochs[cell.key] = [
                {
                    "epoch": e,
                    "turn": e,
                    "train_seconds": SECONDS[cell.label] * e * (NOISE[seed] if "bnp" in cell.label else 1),
                    "test_accuracy": e / 10 + size * (1 + seed / 100) / 1000,
                }
                for e in range(1, 7)
            ]
        store.write_block(rows, epochs)
        assert store.finished(block.id, {cell.key: cell.canonical for cell in block.cells})
    return tmp_path / "out"


def test_claims_of_a_suite_file_are_answered(results_folder: Path) -> None:
    found = {(verdict.says, verdict.where): verdict for verdict in verdicts(read_results(results_folder))}
    cost = found["BNP costs at most 1.2 times BN", "batch_size = 256"]
    assert cost.estimate is not None
    assert (cost.outcome, cost.estimate.n, cost.unit) == ("holds", 12, "pairs")
    assert cost.estimate.value == pytest.approx(1.1)
    gain = found["BNP gains from a larger batch", ""]
    assert gain.estimate is not None
    assert gain.estimate.value == pytest.approx(0.5 + 0.24 * 1.015)
    assert (gain.outcome, gain.estimate.n, gain.unit) == ("holds", 2, "seeds")
    assert found["BN reaches 0.5", "batch_size = 16"].outcome == "holds"
    assert len(found) == 4


def test_labels_references_and_overrides_of_a_suite_file_are_shown(results_folder: Path) -> None:
    text = render(read_results(results_folder))
    assert "16.08 (Table 1, V100)" in text
    assert "| bnp(statistics=batch) | 1.300 [1.292, 1.308]" in text  # 12.706 times 0.0005 of it on either side
    assert "- optimizer.lr = 0.1 (vanilla, bnp, bnp(statistics=batch)); 0.5 (bn)" in text
    assert "### Seconds per epoch\n" in text
    assert "Not measured to the end" not in text
