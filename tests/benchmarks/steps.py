"""What a step costs, method by method and engine by engine, all in turn in one process.

    python tests/benchmarks/steps.py [--network fc|cnn|resnet20] [--batch-sizes 1,16,60,256,512]
                                     [--runs vanilla,bn,bnp,vanilla/compiled,…] [--rounds 21] [--seconds 0.05]
                                     [--before FOLDER] [--kernels]

Random images of CIFAR-10's shape, SGD, one thread. A run is ``method[/engine][/channels_last]``; ``bn`` normalizes the
network's input too, ``bn-hidden`` leaves it alone; ``bnp-plain`` and ``bnp-fused`` are BNP in that form alone;
``products`` are the matrix products of a step of the fully connected network, alone. With ``before:`` in front a run is
that of the package in the folder of ``--before``, another version: both are imported. Each round times some steps of
every run forwards and backwards (A B C C B A); printed are the median step and, against every other run, the median of
the rounds' ratios with its 95 % bootstrap interval. ``--kernels`` prints instead what the profiler sees of a step of
each run: of compiled ones the compiler's loops and the products that they call.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy.stats import bootstrap
from torch.profiler import ProfilerActivity, profile

from bnpbench.execution.children import MALLOC

FC = {"kind": "fc", "hidden": (100, 100)}
NETWORKS: dict[str, Any] = {"fc": FC, "cnn": "cnn", "resnet20": {"kind": "resnet", "depth": 20}}
METHODS: dict[str, Any] = {
    "bn": {"kind": "bn", "input": True},
    "bn-hidden": {"kind": "bn", "input": False},
    "bnp-plain": {"kind": "bnp", "form": "plain"},
    "bnp-fused": {"kind": "bnp", "form": "fused"},
}
RUNS = ",".join(f"{method}{engine}" for engine in ("", "/compiled") for method in ("vanilla", "bn", "bn-hidden", "bnp"))


IMPORTED: dict[str, dict[str, ModuleType]] = {}  # the modules of another version, by its folder


@contextmanager
def package_of(folder: str) -> Iterator[None]:
    """``import bnpbench`` is the one in ``folder``."""
    own = taken_out()
    sys.modules.update(IMPORTED.get(folder, {}))
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        IMPORTED[folder] = taken_out()
        sys.modules.update(own)


def taken_out() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "bnpbench"}


def prepared(run: str, network: str, batch_size: int, count: int) -> tuple[Any, list[Any]]:
    """The call of a run's step, and arguments for some of them."""
    if run == "products":
        return products(batch_size)
    from bnpbench.suite import Cell, Settings
    from bnpbench.training.engines import ENGINES
    from bnpbench.training.examples import Resident
    from bnpbench.training.trainer import Trainer

    class Random(Resident):
        """Random images and labels."""

        def __init__(self, shape: tuple[int, ...]) -> None:
            generator = torch.Generator().manual_seed(0)
            self.images = torch.rand(count, *shape, generator=generator)
            self.labels = torch.randint(10, (count,), generator=generator)
            self.input_shape, self.classes = shape, 10

    kind, *others = run.split("/")
    engine = next((other for other in others if other in ENGINES), "eager")
    memory_format = "channels_last" if "channels_last" in others else "contiguous"
    settings = Settings.model_validate(
        {
            "dataset": "cifar10",
            "network": NETWORKS[network],
            "method": METHODS.get(kind, kind),
            "optimizer": {"kind": "sgd", "lr": 0.01},
            "batch_size": batch_size,
            "epochs": 1,
            "device": "cpu",
            "engine": engine,
            "memory_format": memory_format,
            "threads": 1,
        }
    )
    shape = (3072,) if network == "fc" else (3, 32, 32)
    trainer = Trainer(Cell(settings), Random(shape), torch.device("cpu"))
    trainer.prepare()
    batches = list(trainer.examples.training(torch.randperm(count)[: count // batch_size * batch_size], batch_size, 0))
    return trainer.engine.call, batches


def products(batch_size: int) -> tuple[Any, list[Any]]:
    """The products of a step: every layer's output, and the gradients of its weight and of all inputs but the first."""
    widths = [3072, *FC["hidden"], 10]
    layers = [
        (torch.rand(batch_size, n), torch.rand(m, n), torch.rand(m), torch.rand(batch_size, m))
        for n, m in pairwise(widths)
    ]
    outputs, weights = [torch.empty_like(d) for *_, d in layers], [torch.empty_like(w) for _, w, *_ in layers]
    inputs = [torch.empty_like(h) for h, *_ in layers]

    def call(*_: Any) -> None:
        for number, (h, w, b, d) in enumerate(layers):
            torch.addmm(b, h, w.t(), out=outputs[number])
            torch.mm(d.t(), h, out=weights[number])
            if number:
                torch.mm(d, w, out=inputs[number])

    return call, [()]


def timed(call: Any, batches: list[Any], first: int, steps: int) -> float:
    begin = time.perf_counter()
    for number in range(first, first + steps):
        call(*batches[number % len(batches)])
    return (time.perf_counter() - begin) / steps


def measure(runs: dict[str, tuple[Any, list[Any]]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds a step in each round."""
    fastest = min(timed(call, batches, 0, 5) for call, batches in runs.values())
    fastest = min([fastest, *(timed(call, batches, 5, 3) for call, batches in runs.values())])
    steps = max(3, int(seconds / fastest))
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        sums = dict.fromkeys(runs, 0.0)
        for name in [*runs, *reversed(runs)]:
            sums[name] += timed(*runs[name], number * steps, steps) / 2
        for name, value in sums.items():
            found[name].append(value)
    return found


def kernels(call: Any, batches: list[Any], seconds: float) -> Iterator[tuple[str, float, float]]:
    """Each operator or compiled loop: its name, microseconds a step by itself, and calls a step."""
    steps = max(20, int(seconds / timed(call, batches, 0, 20)))
    for _ in range(2):  # the first profile of a process sees calls of products that are slow for its sake
        with profile(activities=[ProfilerActivity.CPU]) as found:
            timed(call, batches, 20, steps)
    for event in sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total):
        yield event.key, event.self_cpu_time_total / steps, event.count / steps


def ratio(ours: list[float], theirs: list[float]) -> str:
    ratios = np.array(ours) / np.array(theirs)
    if np.ptp(ratios) == 0:
        return f"{ratios[0]:.3f}"
    interval = bootstrap((ratios,), np.median, n_resamples=2000, rng=0).confidence_interval
    return f"{median(ratios):.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="fc")
    parser.add_argument("--batch-sizes", default="1,16,60,256,512")
    parser.add_argument("--runs", default=RUNS)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.05, help="of the fastest run, in each turn")
    parser.add_argument("--before", help="a folder with another version of the package")
    parser.add_argument("--kernels", action="store_true", help="what the profiler sees of a step, instead of ratios")
    parser.add_argument("--examples", type=int, default=20_000)
    options = parser.parse_args()
    if MALLOC.items() - os.environ.items():  # as in the processes that measure cells: read when a process starts
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **MALLOC})
    torch.set_num_threads(1)
    torch._inductor.config.cpp.enable_kernel_profile = options.kernels
    for batch_size in map(int, options.batch_sizes.split(",")):
        torch._dynamo.reset()
        names = [
            name for name in options.runs.split(",") if batch_size > 1 or name.split("/")[0] not in ("bn", "bn-hidden")
        ]
        runs = {}
        for name in names:
            version, _, run = name.rpartition(":")
            with package_of(options.before) if version else nullcontext():
                runs[name] = prepared(run, options.network, batch_size, options.examples)
        print(f"{options.network}, N = {batch_size}", flush=True)
        if options.kernels:
            for name, run in runs.items():
                print(f"  {name}")
                for kernel, time_of_step, calls in kernels(*run, options.seconds):
                    print(f"    {time_of_step:10.1f} us {calls:6.2f} calls  {kernel[:100]}", flush=True)
            continue
        found = measure(runs, options.rounds, options.seconds)
        for name, values in found.items():
            against = "  ".join(f"/{other} {ratio(values, found[other])}" for other in names if other != name)
            print(f"  {name:18} {median(values) * 1e6:10.1f} us  {against}", flush=True)


if __name__ == "__main__":
    main()
