"""How far the numbers of one program move from run to run, and how small a slow-down `compare` still finds.

    python tests/benchmarks/run_to_run.py FOLDER [--runs 10] [--threshold 2%]

Runs one small suite again and again on this machine, unchanged twice as often as slowed down, in turn. The slowed
program is a copy of the package whose BNP waits in a busy loop before each step, for a tenth of the median step that
the two runs before it measured. Printed: in how many pairs of runs the intervals of the bnp/vanilla ratio overlap, how
often `compare` finds the slow-down, how often it raises an alarm where nothing changed, whether neighbours that keep
all cores busy for the first half of a run move the ratio, and the coverage of the intervals over seeds and over
cells, simulated.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import bnpbench
from bnpbench import read_results
from bnpbench.statistics.intervals import Estimate, mean_interval
from bnpbench.statistics.times import processes_interval

START_SECONDS = 10.0  # until the first cell begins
SUITE = """
name = "run-to-run"
[train]
dataset = { kind = "synthetic", shape = [784], train = 2560, test = 100, classes = 10 }
network = { kind = "fc", hidden = [100, 100] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 64
epochs = 12
threads = 1
device = "cpu"
[sweep]
seed = [1, 2, 3, 4]
method = ["vanilla", "bnp"]
[measure]
interleave = ["method"]
warmup_epochs = 1
"""

SLOW = """

def _slowed(precondition):
    from time import perf_counter

    def slowed(self):
        end = perf_counter() + {seconds}
        while perf_counter() < end:
            pass
        return precondition(self)

    return slowed


BNP.precondition = _slowed(BNP.precondition)
"""


def run(suite: Path, out: Path, package: Path | None = None) -> None:
    """Run the suite, unless it was, with the package of a folder."""
    if out.is_dir() and (read_results(out).cells.status == "ok").sum() == 8:
        return
    command = [sys.executable, "-m", "bnpbench", "run", suite, "--out", out, "--device", "cpu", "--quiet"]
    subprocess.run(command, env=environment(package), check=True, stdout=subprocess.DEVNULL, cwd=suite.parent)


def took(out: Path) -> float:
    """Seconds from the first cell's start to the last one's end."""
    cells = read_results(out).cells
    return float((cells.finished.max() - cells.started.min()).total_seconds())


def environment(package: Path | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(package)} if package else dict(os.environ)


def compare(base: Path, new: Path, threshold: str) -> int:
    """The exit code of `compare`: 1 for a regression."""
    command = [sys.executable, "-m", "bnpbench", "compare", base, new, "--max-slowdown", threshold]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def seconds(out: Path) -> pd.DataFrame:
    """Seconds of every epoch: a row for each seed and epoch, a column for each method."""
    results = read_results(out)
    labelled = results.epochs.merge(results.cells[["key", "label", "seed"]], on="key")
    return labelled.pivot_table(index=["seed", "epoch"], columns="label", values="train_seconds").astype(float)


def ratio(out: Path) -> Estimate:
    """The bnp/vanilla ratio, as the report has it."""
    table = seconds(out)
    ratios = table["bnp"] / table["vanilla"]
    return processes_interval([list(of_seed) for _, of_seed in ratios.groupby("seed")], "ratios")


def step_seconds(out: Path) -> float:
    """The median step of bnp."""
    results = read_results(out)
    bnp = results.cells[results.cells.label == "bnp"].key
    return float(results.epochs[results.epochs.key.isin(bnp)].step_seconds_median.median())


def slow_package(folder: Path, step: float) -> Path:
    """A copy of the package whose BNP waits ``step`` seconds before each step."""
    package = folder / "slow"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(Path(bnpbench.__file__).parent, package / "bnpbench")
    with (package / "bnpbench/bnp/preconditioner.py").open("a") as file:
        file.write(SLOW.format(seconds=repr(step)))
    return package


@contextmanager
def busy_neighbours(after: float, until: float):
    """All cores busy with another program from so many seconds on to so many."""
    spin = f"import time; time.sleep({after}); end = time.time() + {until - after}\nwhile time.time() < end: pass"
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", spin]))
            stack.callback(process.kill)
        yield


def coverage(n: int, trials: int = 20_000) -> float:
    """How often the interval over n seeds holds the mean that normal seeds were drawn with."""
    draws = np.random.default_rng(n).standard_normal((trials, n))
    return sum(e.low <= 0 <= e.high for e in map(mean_interval, draws.tolist())) / trials


def coverage_over_cells(k: int, epochs: int = 20, trials: int = 1000) -> float:
    """How often the interval over k cells holds the truth where these differ by 3 % and their epochs by 5 %."""
    random = np.random.default_rng(k)
    held = 0
    for _ in range(trials):
        cells = [(1 + 0.03 * random.standard_normal()) * (1 + 0.05 * random.standard_normal(epochs)) for _ in range(k)]
        estimate = processes_interval(cells, "times")
        held += estimate.low <= 1 <= estimate.high
    return held / trials


def told(e: Estimate) -> str:
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"


def spread(values: Sequence[float]) -> str:
    return f"{min(values):.4g} to {max(values):.4g} (standard deviation {statistics.stdev(values):.2g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threshold", default="2%")
    asked = parser.parse_args()
    folder, runs = asked.folder.resolve(), asked.runs
    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / "run-to-run.toml"
    suite.write_text(SUITE)

    for n in (2, 3, 5):
        print(f"coverage of the interval over {n} seeds, simulated: {coverage(n):.3f}", flush=True)
    for k in (3, 4, 6):
        print(f"coverage of the interval over {k} cells, simulated: {coverage_over_cells(k):.3f}", flush=True)
    same, slow = [folder / f"same{i}" for i in range(2 * runs)], [folder / f"slow{i}" for i in range(runs)]
    for i in range(runs):
        pair = same[2 * i : 2 * i + 2]
        for out in pair:
            run(suite, out)
        step = min(map(step_seconds, pair))
        run(suite, slow[i], slow_package(folder, step / 10))
        ratios = " ".join(f"{out.name} {told(ratio(out))}" for out in (*pair, slow[i]))
        print(f"{ratios}; a step of bnp takes {step * 1e3:.3f} ms", flush=True)

    ratios = [ratio(out) for out in same]
    trained = [float(seconds(out).sum().sum()) for out in same]
    print(f"a run takes {statistics.median(map(took, same)):.1f} s, of which {statistics.median(trained):.1f} s train")
    print(f"bnp/vanilla over {len(same)} unchanged runs: {spread([e.value for e in ratios])}")
    print(f"seconds an epoch of bnp: {spread([float(seconds(out)['bnp'].median()) for out in same])}")
    pairs = list(combinations(ratios[:runs], 2))
    print(f"intervals that overlap, of the first {runs} runs: {sum(overlap(*p) for p in pairs)} of {len(pairs)} pairs")
    effects = [ratio(new).value / ratio(base).value - 1 for base, new in zip(same[::2], slow, strict=True)]
    print(f"what the busy loop adds to bnp/vanilla: {statistics.mean(effects):.1%}, single runs {spread(effects)}")
    found = [compare(base, new, asked.threshold) for base, new in zip(same[::2], slow, strict=True)]
    print(f"slow-downs of a tenth found by compare: {found.count(1)} of {len(found)}")
    alarms = [compare(base, new, asked.threshold) for base, new in zip(same, same[1:] + same[:1], strict=True)]
    print(f"alarms where nothing changed: {alarms.count(1)} of {len(alarms)}")

    inside = []
    for i in range(5):
        with busy_neighbours(after=0, until=took(same[0]) / 2 + START_SECONDS):
            run(suite, busy := folder / f"busy{i}")
        quiet, noisy = ratios[i], ratio(busy)
        inside.append(abs(noisy.value - quiet.value) < noisy.high - noisy.low)
        print(f"half of a run beside busy neighbours: {told(noisy)}, undisturbed: {told(quiet)}", flush=True)
    print(f"moved by less than the interval: {sum(inside)} of {len(inside)}")


def overlap(one: Estimate, other: Estimate) -> bool:
    return one.low <= other.high and other.low <= one.high


if __name__ == "__main__":
    main()
