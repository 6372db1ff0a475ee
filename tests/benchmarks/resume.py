"""Cells of five epochs, killed after the second and the third and resumed, against undisturbed ones, bit for bit; and
every method of the paper on ResNet-20 twice, row for row.

    python tests/benchmarks/resume.py FOLDER DATA

DATA holds CIFAR-10. About a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bnpbench import read_results
from tests.support.kept import kept
from tests.support.timeless import timeless

RESUMED = """
name = "resumed"
[train]
dataset = "cifar10"
epochs = 5
threads = 1
device = "cpu"
"""
CELLS = {
    "fc with bnp": """
network = { kind = "fc", hidden = [100, 100] }
method = "bnp"
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 60
""",
    "cnn with bn and momentum": """
network = "cnn"
method = "bn"
optimizer = { kind = "sgd", lr = 0.05, momentum = 0.9 }
batch_size = 60
train_limit = 6000
""",
    "resnet-20 with bnp+gn and warm-up": """
network = { kind = "resnet", depth = 20 }
method = "bnp+gn"
optimizer = { kind = "sgd", lr = 0.1, momentum = 0.9 }
schedule = { kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 1 } }
augment = "crop-flip"
batch_size = 128
train_limit = 1000
""",
}
TWICE = """
name = "twice"
[train]
dataset = "cifar10"
network = { kind = "resnet", depth = 20 }
optimizer = { kind = "sgd", lr = 0.1, momentum = 0.9 }
weight_decay = 1e-4
augment = "crop-flip"
initialization = { kind = "he-normal" }
batch_size = 128
epochs = 1
train_limit = 5000
threads = 1
device = "cpu"
[sweep]
method = [
    "vanilla", "bn", "bn-pre", "renorm", { kind = "renorm", clipped = false }, "ln", "gn", "4things", "bnp", "bnp+gn",
]
"""


def start(suite: Path, out: Path, data: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "bnpbench", "run", suite, "--out", out, "--data-dir", data, "--quiet", *more],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_after(process: subprocess.Popen[bytes], out: Path, epochs: int) -> None:
    """Kill the whole group once the state after so many epochs is kept."""
    while process.poll() is None:
        if len(kept(out)) >= epochs:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.02)
    raise RuntimeError("it was over before it could be killed")


def alike(one: Path, two: Path) -> bool:
    """Whether all epochs are equal, but for times."""
    # to the last digit, and NaN (of a cell that diverged) equals NaN
    mine, other = (timeless(read_results(out).epochs).map(repr) for out in (one, two))
    return len(mine) > 0 and mine.equals(other)


def verdict(same: bool) -> str:
    return "equal" if same else "NOT equal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    asked = parser.parse_args()
    folder, data = asked.folder.resolve(), asked.data.resolve()
    faults = 0
    for number, (name, text) in enumerate(CELLS.items()):
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        (place / "resumed.toml").write_text(RESUMED + text)
        for epochs in (2, 3):
            kill_after(start(place / "resumed.toml", place / "killed", data), place / "killed", epochs)
        for out in ("killed", "whole"):
            assert start(place / "resumed.toml", place / out, data).wait() == 0
        same = alike(place / "killed", place / "whole")
        faults += not same
        print(f"{name}, killed after the second and third of five epochs: {verdict(same)}", flush=True)
    (folder / "twice.toml").write_text(TWICE)
    for out in ("first", "second"):
        assert start(folder / "twice.toml", folder / out, data, "--jobs", "2").wait() == 0
    same = alike(folder / "first", folder / "second")
    cells = read_results(folder / "first").cells
    print(f"ResNet-20, {len(cells)} methods, {dict(cells.status.value_counts())}, twice: {verdict(same)}")
    print(cells[["label", "status", "wall_seconds"]].to_string(index=False))
    return 1 if faults or not same else 0


if __name__ == "__main__":
    sys.exit(main())
