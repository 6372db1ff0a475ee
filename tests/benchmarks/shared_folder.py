"""Two runs of one suite into one folder at once, ten times; and a disk of 1 MiB that is filled in the middle of a run.

    python tests/benchmarks/shared_folder.py FOLDER [--times 10]

The disk is a tmpfs, for which one has to be root.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from bnpbench import read_results
from tests.benchmarks.kills import PATIENCE, differences, text


def start(suite: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bnpbench", "run", suite, "--out", out]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def at_once(suite: Path, undisturbed: Path, times: int) -> list[str]:
    """Two runs at once: both end well, and every cell was measured once. The faults."""
    faults, shares = list[str](), Counter[str]()
    for number in range(times):
        out = suite.parent / f"twice{number}"
        runs = [start(suite, out) for _ in range(2)]
        told = [run.communicate(timeout=PATIENCE)[1] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], told
        measured = [sum(" ok (" in line for line in text.splitlines()) for text in told]
        cells = len(read_results(out).cells)
        faults += [f"{sum(measured)} cells were measured, there are {cells}"] * (sum(measured) != cells)
        faults += differences(out, undisturbed)
        shares[f"{min(measured)} + {max(measured)}"] += 1
    print(f"two runs at once, {times} times: {len(faults)} faults; cells measured by each: {dict(shares)}", *faults)
    return faults


@contextmanager
def small_disk(place: Path):
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(place: Path) -> Path:
    """A file that takes what room there is."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return filler


def full_disk(suite: Path, undisturbed: Path) -> list[str]:
    """The run says what is wrong and keeps what it has; with room again it goes on from there. The faults."""
    with small_disk(suite.parent / "disk") as disk:
        out = disk / "results"
        run = start(suite, out)
        while len(list(out.glob("*/*/cells/*.parquet"))) < 5:
            assert run.poll() is None
            time.sleep(0.01)
        filler = fill(disk)
        _, told = run.communicate(timeout=PATIENCE)
        kept = read_results(out)
        whole = kept.cells[kept.cells.status == "ok"].key
        print(f"full disk: exit code {run.returncode}: {told.strip().splitlines()[-1]}")
        print(f"full disk: {len(whole)} cells kept, {len(kept.damaged)} parts damaged")
        assert run.returncode not in (0, 70)
        assert "Traceback" not in told
        faults = [f"damaged: {reason}" for _, reason in kept.damaged]
        before = {path: path.stat().st_mtime_ns for path in out.glob("*/*/cells/*.parquet") if path.stem in set(whole)}
        filler.unlink()
        assert start(suite, out).wait(PATIENCE) == 0
        faults += [f"measured again: {path.stem}" for path, then in before.items() if path.stat().st_mtime_ns != then]
        faults += differences(out, undisturbed)
    print(f"full disk, with room again: {len(faults)} faults", *faults, flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=10)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / "faults.toml"
    suite.write_text(text(epochs=6).replace("seed = [1, 2]", f"seed = {list(range(8))}"))
    undisturbed = folder / "undisturbed"
    assert start(suite, undisturbed).wait(PATIENCE) == 0
    faults = at_once(suite, undisturbed, asked.times) + full_disk(suite, undisturbed)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
