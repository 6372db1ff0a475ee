"""How long ``bnpbench report`` takes on 10,000 cells with 200,000 epochs, after ``bnpbench compact``.

    python tests/benchmarks/big_report.py [--cells 10000] [--keep DIR]

The results are made up, but they are written by the store and merged by ``compact`` as a sweep's are; the suite is a
real one, with claims, in blocks of four methods. Prints the processor time and the peak memory of each command's
process, and exits 1 where the report takes more than 5 s or 500 MiB.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bnpbench.results import Store
from bnpbench.suite import Block, Cell, Suite, load_suite
from tests.support.made_results import ENVIRONMENT

EPOCHS = 20
SECONDS, BYTES = 5.0, 500 * 2**20
SUITE = """
name = "big"
[train]
dataset = "digits"
network = {{ kind = "fc", hidden = [100, 100] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
epochs = {epochs}
[sweep]
optimizer.lr = {rates}
batch_size = [6, 16, 60, 256, 512]
method = ["vanilla", "bn", "ln", "bnp"]
seed = [1, 2, 3, 4, 5]
[measure]
interleave = ["method"]
[report]
targets = [0.5, 0.9]
[[claim]]
says = "BNP costs no more than BN"
left = {{ method = "bnp" }}
right = {{ method = "bn" }}
where = {{ batch_size = [256, 512], optimizer = {{ lr = {rates} }} }}
metric = "train_seconds"
ratio = {{ at_most = 1.0 }}
[[claim]]
says = "BNP is comparable to BN"
left = {{ method = "bnp" }}
right = {{ method = "bn" }}
where = {{ batch_size = [6, 16, 60], optimizer = {{ lr = {rates} }} }}
metric = "test_accuracy"
difference = {{ at_least = -0.01, at_most = 0.01 }}
"""
EACH = 5 * 4 * 5  # cells of a learning rate
COST = {"vanilla": 1.0, "bn": 1.2, "ln": 1.15, "bnp": 1.1}


def main() -> int:
    """Make, merge, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="Folder for the results; what is there already is reported again.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = options.keep or Path(temporary) / "results"
        if not out.is_dir():
            begin = time.perf_counter()
            cells = make(out, options.cells)
            print(f"made {cells} cells and {cells * EPOCHS} epochs in {time.perf_counter() - begin:.0f} s", flush=True)
            measure("compact", out)
        seconds, peak = measure("report", out, "--output", Path(temporary) / "report.md")
        measure("report", out, "--format", "json", "--output", Path(temporary) / "report.json")
    return int(seconds > SECONDS or peak > BYTES)


def make(out: Path, count: int) -> int:
    """Write the suite's results by the store, block by block; the number of cells."""
    rates = [round(0.001 * number, 4) for number in range(1, count // EACH + 1)]
    out.mkdir(parents=True)
    path = out / "big.toml"
    path.write_text(SUITE.format(epochs=EPOCHS, rates=rates))
    suite: Suite = load_suite(path)
    path.unlink()
    cells = suite.cells(device="cpu", threads=1)
    store = Store(out, suite.name, ENVIRONMENT).create()
    store.write_suite(suite.document(cells))
    os.fsync = lambda descriptor: None  # type: ignore[assignment] # 30,000 of them: nothing here must survive a power cut
    random.seed(0)
    for block in suite.blocks(cells):
        drift = random.gauss(1, 0.05)
        store.write_block(
            [row(block, cell) for cell in block.cells], {cell.key: epochs(cell, drift) for cell in block.cells}
        )
    return len(cells)


def row(block: Block, cell: Cell) -> dict[str, Any]:
    """A finished cell's row."""
    settings = cell.settings
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return {
        "key": cell.key,
        "label": cell.label,
        "block": block.id,
        "role": "final",
        "settings": cell.canonical,
        "method": settings.method.kind,
        "network": "fc",
        "dataset": "digits",
        "batch_size": settings.batch_size,
        "engine": "eager",
        "engine_active": "eager",
        "device": "cpu",
        "devices": 1,
        "seed": settings.seed,
        "threads": 1,
        "precision": "float32",
        "status": "ok",
        "log": f"logs/{block.id}.log",
        "parameters": 17_610,
        "flops_model": 100_000 * settings.batch_size,
        "flops_method_predicted": 1000 * settings.batch_size,
        "flops_method_counted": 1000 * settings.batch_size,
        "flops_method_executed": 900 * settings.batch_size,
        "operators_per_step": 100,
        "bytes_per_step": 200_000,
        "wall_seconds": 3.0,
        "stopped_by": "epochs",
        "train_examples": 1400,
        "last_batch": 37,
        "bnpbench": "0.1.0",
        "torch": "2.14.1",
        "started": now,
        "finished": now,
    }


def epochs(cell: Cell, drift: float) -> list[dict[str, Any]]:
    """Its epochs, with times that scatter by 3 % and a curve that flattens."""
    found = []
    for epoch in range(1, EPOCHS + 1):
        seconds = 0.1 * drift * COST[cell.label] * random.gauss(1, 0.03)
        accuracy = 0.95 - 0.6 / epoch + random.gauss(0, 0.01)
        found.append(
            {
                "turn": epoch,
                "epoch": epoch,
                "train_loss": 2.0 / epoch,
                "train_accuracy": accuracy,
                "test_loss": 2.1 / epoch,
                "test_accuracy": accuracy,
                "learning_rate": cell.settings.optimizer.lr,
                "steps": 100,
                "examples": 1400,
                "train_seconds": seconds,
                "evaluation_seconds": 0.01,
                "other_seconds": 0.001,
                "step_seconds_median": seconds / 100,
                "step_seconds_p90": seconds / 90,
                "outlier": False,
            }
        )
    return found


def measure(command: str, *arguments: str | Path) -> tuple[float, int]:
    """Run a command to its end, print what it took, and give seconds of processor time and peak bytes."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bnpbench", command, *map(str, arguments)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall, seconds = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    told = " ".join(str(a) for a in arguments[1:-2])
    print(f"{command} {told}: {seconds:.2f} s of processor time, {wall:.2f} s, {peak / 2**20:.0f} MiB", flush=True)
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return seconds, peak


if __name__ == "__main__":
    sys.exit(main())
