"""What a machine with a GPU is asked for, in under 8 minutes on one H100; ``nox -s gpu`` runs it.

    python tests/benchmarks/gpu.py [--wheels DIR] [--out DIR] [--device cuda|cpu]

The CUDA tests; the machine's peak rates; Table 1's network at N = 16, 256 and 512 in all engines, 3 epochs; the
crossing of BN and BNP as CUDA graphs, N = 1, 16, 256 and 4096 times width 100 and 1024; one profile. Prints a table,
and exits 1 where one of the parts failed. It runs from a checkout, installed or not, and needs no network: packages
that the machine lacks are taken from ``--wheels``, a folder of wheels, and put beside the results. ``--device cpu``
tries the script itself on small work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 470.0  # seconds for everything
SHARES = {"tests": 150.0, "rates": 40.0, "timing": 240.0, "crossover": 200.0, "profile": 60.0}  # at most, of each part
TIMING = """
name = "gpu-timing"
source = "Lange, Helfrich and Ye 2022, Table 1"
[train]
dataset = {{ kind = "synthetic", shape = [3, 32, 32], train = {examples}, test = 1000 }}  # of CIFAR-10's size
network = {{ kind = "fc", hidden = [100, 100] }}
optimizer = {{ kind = "sgd", lr = 0.01 }}
epochs = 3
threads = 1
[sweep]
engine = {engines}
batch_size = [16, 256, 512]
method = ["vanilla", "bn", "bnp"]
[measure]
interleave = ["method"]
"""
CUDA = {"examples": 50_000, "engines": ["graphed", "eager", "compiled"]}
CPU = {"examples": 1024, "engines": ["eager"]}
WIDTHS = "network.hidden=[100, 100, 100],[1024, 1024, 1024]"


def main() -> int:
    """Everything in turn; what fails does not keep the rest from running."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheels", type=Path, help="Folder of wheels that this machine lacks.")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="Folder of the results.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    environment = variables(out, options.wheels)
    if options.device == "cuda" and not sees_cuda(environment):
        print("gpu: torch sees no CUDA device here; run this on a machine with a GPU", file=sys.stderr)
        return 2
    begin = time.monotonic()
    statuses = {}
    for name, command in parts(out, options.device).items():
        left = LIMIT - (time.monotonic() - begin)
        statuses[name] = run(name, command, environment, min(SHARES[name], left))
    subprocess.run([sys.executable, __file__, "--table", str(out / "results")], env=environment, check=False)
    for name, status in statuses.items():
        print(f"{name}: {status}")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return int(any(not status.startswith("ok") for status in statuses.values()))


def variables(out: Path, wheels: Path | None) -> dict[str, str]:
    """The environment of every part: this checkout first, then what the wheels brought."""
    places = [str(ROOT)]
    if wheels is not None:
        site = out / "packages"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
        subprocess.run([*install, "--target", str(site), *map(str, sorted(wheels.glob("*.whl")))], check=True)
        places.append(str(site))
    earlier = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*places, *([earlier] if earlier else [])])}


def sees_cuda(environment: dict[str, str]) -> bool:
    """Whether torch does, in a process of its own: this one has not got the wheels."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def parts(out: Path, device: str) -> dict[str, list[str]]:
    """Name → the command of each part. The first suite is written here, the other is a shipped one."""
    on_gpu = device == "cuda"
    timing = out / "gpu-timing.toml"
    timing.write_text(TIMING.format(**(CUDA if on_gpu else CPU)))
    tool = [sys.executable, "-m", "bnpbench"]
    run_it = ["--out", str(out / "results"), "--device", device, "--fresh", "--quiet"]
    places = ["batch_size=1,16,256,4096" if on_gpu else "batch_size=1,16", WIDTHS, f"device={device}", "seed=1"]
    places.append("engine=graphed" if on_gpu else "engine=eager")
    one = ["--only", "method=bnp", "--only", "batch_size=256", "--only", "engine=eager"]
    return {
        "tests": [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-W", "default", str(ROOT / "tests/cuda")],
        "rates": [*tool, "env", "--measure"],
        "timing": [*tool, "run", str(timing), *run_it],
        "crossover": [
            *tool,
            "run",
            str(ROOT / "suites/crossover.toml"),
            *run_it,
            *(f"--only={place}" for place in places),
        ],
        "profile": [*tool, "profile", str(timing), "--device", device, *one, "--output", str(out / "profile")],
    }


def run(name: str, command: list[str], environment: dict[str, str], seconds: float) -> str:
    """Run a part, its output on ours; how it ended."""
    print(f"\n=== {name} ===", flush=True)
    begin = time.monotonic()
    if seconds <= 0:
        return "not run: no time left"
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s"
    ended = "ok" if done.returncode == 0 else f"exit code {done.returncode}"
    return f"{ended} in {time.monotonic() - begin:.0f} s"


def table(results: Path) -> None:
    """Median and range of the seconds an epoch and of the ratio to vanilla in the same epoch."""
    import json

    from tabulate import tabulate

    from bnpbench.results import read_results

    read = read_results(results)
    cells = read.cells[read.cells.status == "ok"].copy()
    cells["width"] = [json.loads(text)["network"]["hidden"][0] for text in cells.settings]
    place = ["suite", "engine_active", "width", "batch_size"]
    epochs = read.epochs.merge(cells[["key", "label", "method", *place[1:]]], on="key")
    rows = []
    for names, group in epochs.groupby(place):
        base = group[group.method == "vanilla"].set_index("epoch").train_seconds
        for label, own in group.groupby("label", sort=False):
            seconds = own.set_index("epoch").train_seconds
            per_step = 1e3 * seconds / own.set_index("epoch").steps
            ratio = (seconds / base).dropna()
            rows.append((*map(str, names), label, spread(seconds), spread(per_step), spread(ratio), str(len(seconds))))
    heads = ["suite", "engine", "width", "N", "method", "s an epoch", "ms a step", "ratio to vanilla", "epochs"]
    print("\nMedian (range) over epochs.\n")
    print(tabulate(rows, heads, tablefmt="github", disable_numparse=True))


def spread(values) -> str:  # type: ignore[no-untyped-def] - pandas is on the machine only with the wheels
    """``0.21 (0.20 to 0.23)``."""
    if not len(values):
        return "-"
    return f"{values.median():.4g} ({values.min():.4g} to {values.max():.4g})"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(main())
