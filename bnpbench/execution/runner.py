"""Runs a suite: machine, cells, preflight, blocks, results."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence, Set
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bnpbench.errors import BnpbenchError, DeviceError
from bnpbench.execution.children import ask, start_forkserver
from bnpbench.execution.messages import Preflight, Probe
from bnpbench.execution.options import Options, Outcome
from bnpbench.execution.progress import Progress, Silent
from bnpbench.execution.sweep import Sweep
from bnpbench.results import Results, Store, read_results
from bnpbench.suite import DATASETS, Block, Cell, Suite


def run_suite(suite: Suite, out: str | Path = "results", progress: Progress | None = None, **options: Any) -> Results:
    """Run a suite and read its results.

    Args:
        suite: from ``load_suite``.
        out: folder of the results; what is finished there is not measured again.
        progress: is told what happens; silent by default.
        options: see ``Options``.

    Raises:
        BnpbenchError: before anything runs, when the suite cannot be run here.
    """
    execute(suite, Options(out=Path(out), **options), progress or Silent())
    return read_results(Path(out))


def execute(suite: Suite, options: Options, progress: Progress) -> Outcome:
    """Run a suite's blocks that are not finished yet; see ``run_suite``."""
    _check(suite, options)
    kinds = {cell.settings.dataset.kind for cell in suite.cells(device="cpu", threads=1)}
    start_forkserver(["sklearn.datasets"] if "digits" in kinds else [])
    environment = ask(_probe(kinds, options), light=True)
    device = _device(options.device, environment)
    threads = max(environment["hardware"]["cores"] // options.jobs, 1)
    whole = suite.cells(device=device, threads=threads, epochs=options.epochs)
    chosen = suite.cells(device=device, threads=threads, only=options.only, seeds=options.seeds, epochs=options.epochs)
    for cell in chosen:
        if (cell.settings.engine, cell.settings.device) == ("graphed", "cpu"):
            raise DeviceError('engine = "graphed" records CUDA graphs; on the CPU take "eager" or "compiled"')
    store = Store(options.out, suite.name, environment)
    store.write_suite(suite.document(whole, epochs=options.epochs))
    blocks = _sharded(suite.blocks(chosen), options.shard)
    costs = ask(Preflight(_cells(blocks), options.data_dir, options.offline), suite.plugins)
    cores = environment["hardware"]["cores"]
    return Sweep(store, options, costs, _provenance(suite), cores, progress, suite.plugins).run(blocks)


def _check(suite: Suite, options: Options) -> None:
    if options.jobs > 1 and suite.measure.interleave:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} interleaves cells to compare their times, and blocks that "
            "run side by side disturb each other; leave --jobs out, or take `interleave` out of [measure]"
        )
    if options.jobs > 1 and suite.measure.interval is not None:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} sets `interval`, which asks for undisturbed times; "
            "leave --jobs out, or take `interval` out of [measure]"
        )


def _probe(kinds: Set[str], options: Options) -> Probe:
    """What has to be known first; without a network also whether the data are there."""
    if not (options.offline or os.environ.get("BNPBENCH_OFFLINE", "") not in ("", "0")):
        return Probe()
    return Probe(tuple(sorted(DATASETS.keys() & kinds)), options.data_dir)


def _device(asked: str, environment: dict[str, Any]) -> Literal["cpu", "cuda"]:
    gpus = environment["hardware"]["gpus"]
    if asked == "auto":
        return "cuda" if gpus else "cpu"
    name, _, index = asked.partition(":")
    if name == "cpu" and not index:
        return "cpu"
    if name != "cuda" or (index and not index.isdigit()):
        raise DeviceError(f"--device {asked}: give auto, cpu, cuda or cuda:i")
    if not gpus:
        raise DeviceError(
            f"--device {asked}: torch {environment['software']['torch']} sees no CUDA device here; "
            "use --device cpu, or install a CUDA build of torch on a machine with a GPU"
        )
    if int(index or 0) >= gpus:
        raise DeviceError(f"--device {asked}: this machine has {gpus} CUDA device(s), numbered from 0")
    return "cuda"


def _sharded(blocks: Sequence[Block], shard: tuple[int, int] | None) -> tuple[Block, ...]:
    """Every n-th block in the order of their ids, so that another order of the suite's axes moves none."""
    if shard is None:
        return tuple(blocks)
    place, count = shard
    mine = set(sorted(block.id for block in blocks)[place - 1 :: count])
    return tuple(block for block in blocks if block.id in mine)


def _cells(blocks: Sequence[Block]) -> tuple[Cell, ...]:
    return tuple(cell for block in blocks for cell in block.cells)


def _provenance(suite: Suite) -> dict[str, Any]:
    """Versions and the commit of the repository that holds the suite."""
    folder = suite.path.parent if suite.path else Path.cwd()
    commit = _git(folder, "rev-parse", "HEAD")
    return {
        "bnpbench": version("bnpbench"),
        "torch": version("torch"),
        "commit": commit,
        "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")) if commit else None,
    }


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
