"""What a machine with a GPU is asked for, in under 9 minutes on one H100 or H200; ``nox -s gpu`` runs it.

    python tests/benchmarks/gpu.py [--wheels DIR] [--out DIR] [--device cuda|cpu] [--dry]

In turn, what is worth most first: the environment and the GPU's peak rates; the CUDA tests that compile nothing; a
profile of BNP and BN; Table 1's network eagerly, and as CUDA graphs; the tests that compile; the crossing of BN and
BNP as CUDA graphs. Each part has its own limit; one that fails or is stopped keeps no later one from running. After
each, everything so far is packed into ``OUT/gpu.tar.gz``. A table of the times is printed last, and the exit code is 1
where a part failed. It runs from a checkout, installed or not, and needs no network: packages that the machine lacks
are taken from ``--wheels``, a folder of wheels. To try the script itself there are ``--device cpu``, and ``--dry``,
which only lists the tests, profiles 3 steps, and times vanilla at N = 16 alone: a good minute on a mock GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 540.0  # seconds for everything
TIMING = """
name = "gpu-timing"
source = "Lange, Helfrich and Ye 2022, Table 1"
[train]
dataset = {{ kind = "synthetic", shape = [3, 32, 32], train = {examples}, test = 1000 }}  # as CIFAR-10's
network = {{ kind = "fc", hidden = [100, 100] }}
optimizer = {{ kind = "sgd", lr = 0.01 }}
epochs = {epochs}
threads = 1
[sweep]
engine = ["eager", "graphed"]
batch_size = {batch_sizes}
method = ["vanilla", "bn", "bnp"]
[measure]
interleave = ["method"]
warmup_epochs = 1
"""
WHOLE = {"examples": 50_000, "epochs": 6, "batch_sizes": [16, 256, 512]}
DRY = {"examples": 1024, "epochs": 1, "batch_sizes": [16, 256]}
LITTLE = ["--only", "method=vanilla", "--only", "batch_size=16"]  # of the suites, in a dry run


@dataclass(frozen=True)
class Part:
    """A command of the session, and for how many seconds it may run."""

    name: str
    seconds: float
    command: Sequence[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheels", type=Path, help="Folder of wheels that this machine lacks.")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="Folder of the archive.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dry", action="store_true", help="List the tests, measure one method: to try the script.")
    options = parser.parse_args()
    begin = time.monotonic()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bnpbench-gpu-") as folder:
        work = Path(folder)
        (work / "found").mkdir()
        environment = variables(work, options.wheels)
        if options.device == "cuda" and not sees_cuda(environment):
            print("gpu: torch sees no CUDA device here; run this on a machine with a GPU", file=sys.stderr)
            return 2
        chosen = parts(work / "found", options.device, options.dry)
        statuses = session(chosen, work / "found", out / "gpu.tar.gz", environment, LIMIT - (time.monotonic() - begin))
        subprocess.run([sys.executable, __file__, "--table", str(work / "found/results")], env=environment, check=False)
    for name, status in statuses.items():
        print(f"{name}: {status}")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return int(any(not status.startswith("ok") for status in statuses.values()))


def session(
    chosen: Sequence[Part], found: Path, archive: Path, environment: dict[str, str], limit: float
) -> dict[str, str]:
    """Run the parts in turn, each within its limit and all within ``limit`` seconds; pack ``found`` after each.

    Returns:
        How each ended, by its name.
    """
    begin, statuses = time.monotonic(), dict[str, str]()
    for part in chosen:
        left = limit - (time.monotonic() - begin)
        statuses[part.name] = run(part, min(part.seconds, left), found / f"{part.name}.log", environment)
        (found / "statuses.txt").write_text("".join(f"{name}: {status}\n" for name, status in statuses.items()))
        pack(found, archive)
    return statuses


def run(part: Part, seconds: float, log: Path, environment: dict[str, str]) -> str:
    """Run a part, its output on ours and in a log; how it ended. What it started ends with it."""
    print(f"\n=== {part.name}, at most {seconds:.0f} s ===", flush=True)
    if seconds <= 0:
        return "not run: no time left"
    begin = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            part.command, env=environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(seconds)
            status = "ok" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            status = "stopped"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    print(log.read_text(errors="replace")[-4000:], flush=True)
    return f"{status} after {time.monotonic() - begin:.0f} s"


def pack(found: Path, archive: Path) -> None:
    """All that was found so far, as one file that is there whole."""
    fresh = archive.with_suffix(".fresh")
    with tarfile.open(fresh, "w:gz") as tar:
        tar.add(found, arcname="gpu")
    fresh.replace(archive)


def parts(found: Path, device: str, dry: bool) -> list[Part]:
    """The session; its first suite is written here, the other is a shipped one."""
    on_gpu = device == "cuda"
    timing = found / "gpu-timing.toml"
    timing.write_text(TIMING.format(**(DRY if dry else WHOLE)))
    tool = [sys.executable, "-m", "bnpbench"]
    results = ["--out", str(found / "results"), "--device", device, "--quiet"]
    tests = [sys.executable, "-m", "pytest", "-v", "-o", "addopts=", "-W", "default", "-p", "no:cacheprovider"]
    tests += [str(ROOT / "tests/cuda"), *(["--collect-only"] if dry else [])]
    profile = [*tool, "profile", str(timing), "--compare", "bn,bnp", "--device", device, "--only", "engine=eager"]
    if dry:
        profile += ["--steps", "3"]
        results += LITTLE
    crossing = [*tool, "run", str(ROOT / "suites/crossover.toml"), *results, "--only", f"device={device}"]
    crossing += ["--only", "seed=1", "--only", f"engine={'graphed' if on_gpu else 'eager'}"]
    crossing += ["--only", "batch_size=16,256"]
    engines = ("eager", "graphed") if on_gpu else ("eager",)
    return [
        Part("environment", 20, [sys.executable, __file__, "--environment", device]),
        Part("tests", 60, [*tests, "-m", "not compiles", f"--junitxml={found / 'tests.xml'}"]),
        *(
            Part(f"profile-{size}", 25, [*profile, "--only", f"batch_size={size}", "--output", str(found / "profile")])
            for size in (256, 16)
        ),
        *(
            Part(f"timing-{engine}", 150 if engine == "graphed" else 60, timed)
            for engine in engines
            for timed in [[*tool, "run", str(timing), *results, "--only", f"engine={engine}"]]
        ),
        Part("tests-that-compile", 60, [*tests, "-m", "compiles", f"--junitxml={found / 'tests-that-compile.xml'}"]),
        Part("crossover-1024", LIMIT, [*crossing, "--only", "network.hidden=[1024, 1024, 1024]"]),
        Part("crossover-100", LIMIT, [*crossing, "--only", "network.hidden=[100, 100, 100]"]),
    ]


def variables(work: Path, wheels: Path | None) -> dict[str, str]:
    """The environment of every part: this checkout first, then what the wheels brought."""
    places = [str(ROOT)]
    if wheels is not None:
        site = work / "packages"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
        subprocess.run([*install, "--target", str(site), *map(str, sorted(wheels.glob("*.whl")))], check=True)
        places.append(str(site))
    earlier = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*places, *([earlier] if earlier else [])])}


def sees_cuda(environment: dict[str, str]) -> bool:
    """Whether torch does, in a process of its own: this one has not got the wheels."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def describe(device: str) -> None:
    """Print the environment, then the peak rates of ``device``, and keep these for the reports."""
    from bnpbench.measure import environment, known, rates

    found = environment.describe()
    print(found.model_dump_json(indent=1), flush=True)
    measured = rates.measure(device)
    known.keep(found.id, measured)
    print(measured.model_dump_json(indent=1))


def table(results: Path) -> None:
    """Median and range of the seconds an epoch and of the ratio to vanilla in the same epoch."""
    import json

    from bnpbench.results import read_results
    from bnpbench.text import pipe_table

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
    print(pipe_table(heads, rows))


def spread(values) -> str:  # type: ignore[no-untyped-def] - pandas is on the machine only with the wheels
    """``0.21 (0.20 to 0.23)``."""
    if not len(values):
        return "-"
    return f"{values.median():.4g} ({values.min():.4g} to {values.max():.4g})"


if __name__ == "__main__":
    alone = {"--table": lambda value: table(Path(value)), "--environment": describe}
    if sys.argv[1:2] and sys.argv[1] in alone:
        alone[sys.argv[1]](sys.argv[2])
        sys.exit(0)
    sys.exit(main())
