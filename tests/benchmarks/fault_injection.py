"""Kills sweeps at random moments, resumes them, and compares what is there at the end with an undisturbed run.

    python tests/benchmarks/fault_injection.py FOLDER [--kills 100] [--seed 0]

The parent, a child that measures, or the whole process group gets SIGKILL or SIGTERM some random time after the first
cell of that start began; then the same command goes on. When a sweep of 60 cells is whole, it is compared with the
undisturbed one, and another begins, until so many kills have landed. Sweeps of cells alone and of cells in turn
alternate; with an odd seed the one in turn is the first.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil

from bnpbench import read_results
from tests.processes import below
from tests.timeless import timeless

SUITE = """
name = "faults"
[train]
dataset = {{ kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }}
network = {{ kind = "fc", hidden = [9, 8] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
batch_size = 10
epochs = 6
threads = 1
device = "cpu"
[sweep]
method = ["vanilla", "bn", "bnp"]
seed = [{seeds}]
[measure]
interleave = {interleave}
"""
PATIENCE = 180.0  # seconds until a run that does not end is a fault


@dataclass
class Tally:
    """What came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    sweeps: int = 0
    lost: int = 0
    doubled: int = 0
    damaged: int = 0
    unlike: int = 0

    @property
    def faults(self) -> int:
        return self.lost + self.doubled + self.damaged + self.unlike

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}) over {self.sweeps} whole sweeps: {self.lost} cells lost, "
            f"{self.doubled} doubled, {self.damaged} parts damaged, {self.unlike} cells unlike the undisturbed run's"
        )


def inject(folder: Path, kills: int, cells: int = 60, seed: int = 0) -> Tally:
    """Kill until ``kills`` have landed, and finish the sweep that was killed last."""
    draws = random.Random(seed)
    suites = []
    for name, interleave in (("alone", "[]"), ("in-turn", '["method"]')):
        (folder / name).mkdir(parents=True, exist_ok=True)
        suite = folder / name / "faults.toml"
        suite.write_text(SUITE.format(seeds=", ".join(map(str, range(cells // 3))), interleave=interleave))
        assert start(suite, folder / name / "undisturbed").wait(PATIENCE) == 0
        suites.append(suite)
    tally = Tally()
    while tally.kills.total() < kills:
        suite = suites[(seed + tally.sweeps) % len(suites)]
        out = suite.parent / f"sweep{tally.sweeps}"
        while True:
            process = start(suite, out)
            if tally.kills.total() < kills:
                disturb(process, out, draws, tally, kills)
            if process.wait(PATIENCE) == 0:
                break
        tally.sweeps += 1
        compare(out, suite.parent / "undisturbed", tally)
        print(tally, flush=True)
    return tally


def start(suite: Path, out: Path) -> subprocess.Popen[bytes]:
    """The run, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "bnpbench", "run", suite, "--out", out, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def disturb(process: subprocess.Popen[bytes], out: Path, draws: random.Random, tally: Tally, kills: int) -> None:
    """Kill something now and then from the moment the first cell has begun, until the parent is dead or done."""
    started = time.time()
    while process.poll() is None and tally.kills.total() < kills:
        if not (begun(out, started) and measuring(process)):
            time.sleep(0.005)
            continue
        time.sleep(draws.expovariate(1 / 0.3))
        victim = draws.choice(["parent", "child", "child", "group"])
        number = draws.choice([signal.SIGKILL, signal.SIGTERM])
        children = measuring(process)
        try:
            if victim == "parent":
                process.send_signal(number)
            elif victim == "child":
                draws.choice(children).send_signal(number)
            else:
                os.killpg(process.pid, number)
        except (IndexError, psutil.NoSuchProcess, ProcessLookupError):
            continue  # it was done before
        if process.poll() is None or victim != "child":
            tally.kills[f"{number.name} of the {victim}"] += 1
        if victim != "child":
            process.wait(PATIENCE)
            psutil.wait_procs(children, timeout=PATIENCE)


def begun(out: Path, started: float) -> bool:
    """Whether a cell has begun since then: its log is made first."""
    return any(path.stat().st_mtime > started for path in out.glob("*/*/logs/*.log"))


def measuring(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The children that measure: those of the forkserver."""
    return below(process.pid, generation=2)


def compare(out: Path, undisturbed: Path, tally: Tally) -> None:
    """Add to the tally how the results differ in what two runs share."""
    ours, theirs = read_results(out), read_results(undisturbed)
    tally.damaged += len(ours.damaged)
    mine, other = ours.cells.key.tolist(), theirs.cells.key.tolist()
    tally.lost += len(set(other) - set(mine))
    tally.doubled += len(mine) - len(set(mine)) + int(ours.epochs.duplicated(["key", "epoch"]).sum())
    for key in set(mine) & set(other):
        same = all(
            rows(a, key).equals(rows(b, key)) for a, b in ((ours.cells, theirs.cells), (ours.epochs, theirs.epochs))
        )
        tally.unlike += not same


def rows(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """A cell's rows, but for the turn, which a cell has none of that ran again alone."""
    return timeless(table[table.key == key], "turn", "log", "commit")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begin = time.monotonic()
    tally = inject(asked.folder.resolve(), asked.kills, seed=asked.seed)
    print(f"{tally}; {time.monotonic() - begin:.0f} s")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
