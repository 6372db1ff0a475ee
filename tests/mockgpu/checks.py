"""What is looked at under the mock, in a process of its own: ``python -m tests.mockgpu.checks NAME ARGUMENTS``.

Each function gives what ``json`` can write; the tests beside this file say what it should be.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bnpbench.errors import NotApplicable, SuiteError
from bnpbench.execution.block import BlockRun
from bnpbench.execution.child import configure
from bnpbench.execution.messages import Finished, Profile, RunBlock
from bnpbench.layers.renorm import BatchRenorm
from bnpbench.measure.environment import describe
from bnpbench.measure.gpu import gpu_of
from bnpbench.measure.known import known
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.profiling.phases import profile
from bnpbench.suite import load_suite
from bnpbench.training import engines
from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer
from tests.support.training import cell

MOCK = ctypes.CDLL(None)
MOCK.mockgpu_events.restype = ctypes.c_char_p
DEVICE = torch.device("cuda")
ROWS = {"kind": "synthetic", "shape": (3, 32, 32), "train": 2048, "test": 50, "classes": 10}
IMAGES = {**ROWS, "train": 256}
NETWORKS: dict[str, dict[str, Any]] = {
    "fc": {"network": {"kind": "fc", "hidden": (100, 100)}, "dataset": ROWS, "batch_size": 256},  # of Table 1
    "cnn": {"network": {"kind": "cnn", "channels": (8, 8, 8), "dense": 20}, "dataset": IMAGES, "batch_size": 32},
    "resnet8": {"network": {"kind": "resnet", "depth": 8}, "dataset": IMAGES, "batch_size": 32},
}


@contextmanager
def events() -> Iterator[list[str]]:
    """What happens inside: ``work <kind> <name>``, ``sync``, ``malloc``, ``replay``, ``captured``, ``forbidden``."""
    found: list[str] = []
    MOCK.mockgpu_record(1)
    try:
        yield found
    finally:
        found += MOCK.mockgpu_events().decode().splitlines()
        MOCK.mockgpu_record(0)


def counted(found: list[str]) -> Counter[str]:
    """Kinds of work, and of whatever else happened."""
    return Counter(" ".join(line.split()[: 2 if line.startswith(("work", "sync")) else 1]) for line in found)


def made(network: str, method: Any, **changes: Any) -> Trainer:
    settings = {"device": "cuda", "optimizer": {"kind": "sgd", "lr": 0.1}, "method": method, **NETWORKS[network]}
    one = cell(**{**settings, **changes})
    configure(one.settings, 0)
    return Trainer(one, Resident(one.settings, Path(), DEVICE), DEVICE)


def without_compiler() -> None:
    """Compiling takes seconds: a graph is recorded around the eager step."""

    def fails(*_: Any) -> None:
        raise RuntimeError("compiling takes seconds")

    engines.compiled = fails


def steps(networks: list[str], chosen: list[Any], engine: str, compiles: bool) -> list[dict[str, Any]]:
    """What preparing and a later step of each method on each network do."""
    if not compiles:
        without_compiler()
    found = []
    for network in networks:
        for method in chosen:
            row: dict[str, Any] = {"network": network, "method": method}
            found.append(row)
            try:
                ours = made(network, method, engine=engine)
            except (NotApplicable, SuiteError) as error:
                row["not applicable"] = str(error)
                continue
            with events() as preparing, redirect_stderr(io.StringIO()):
                ours.prepare()
            size = ours.settings.batch_size
            first, second, third = list(
                ours.examples.training(torch.arange(3 * size) % len(ours.examples.labels), size, 0)
            )
            for batch in (first, second):
                ours.engine.call(*batch)
            with events() as stepping:
                ours.engine.call(*third)
            row |= {"active": ours.engine.active, "preparing": counted(preparing), "step": counted(stepping)}
    return found


TEXT = """
name = "small"
[train]
dataset = { kind = "synthetic", shape = [64], train = 320, test = 50, classes = 4 }
network = { kind = "fc", hidden = [256] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 2
threads = 1
batch_size = 32
"""


def measured(
    chosen: list[Any], engine: str, make_trainer: Any = Trainer, text: str = TEXT, warmup: int = 1
) -> dict[str, Any]:
    """Rows of the cells of a block that takes turns over methods, by their labels."""
    turns = f'[sweep]\nmethod = {json.dumps(chosen)}\n[measure]\ninterleave = ["method"]\nwarmup_epochs = {warmup}\n'
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        path.write_text(f'{text}engine = "{engine}"\n{turns}')
        suite = load_suite(path)
    (block,) = suite.blocks(suite.cells(device="cuda", threads=1))
    costs = {one.key: Costs(Columns()) for one in block.cells}
    request = RunBlock(block, block.cells, costs, None, None, True, None, 0, "log")
    configure(block.cells[0].settings, 0)
    said: list[Any] = []
    with redirect_stderr(io.StringIO()):
        BlockRun(request, said.append, make_trainer=make_trainer).run()
    rows = [message.row for message in said if isinstance(message, Finished)]
    return {row["label"]: {name: value for name, value in row.items() if name in LOOKED_AT} for row in rows}


LOOKED_AT = {
    "status",
    "message",
    "engine_active",
    "kernels_per_step",
    "peak_memory_bytes",
    "graph_memory_bytes",
    "energy_joules",
    "clock_mhz_before",
    "clock_mhz_after",
    "throttled",
}


def described() -> dict[str, Any]:
    """What is recorded of the device."""
    gpu = describe().details.gpu
    assert gpu is not None
    return gpu.document()


def recognized(gpu: int) -> list[Any]:
    """What names the environment of a device: as it is known without torch, if it is, and as torch tells it."""
    return [
        found
        and {
            "id": found.id,
            "hardware": found.hardware.document(),
            "software": found.software.model_dump(exclude={"cudnn", "blas"}),
            "capability": found.details.gpu and found.details.gpu.capability,
        }
        for found in (known(gpu), describe(gpu))
    ]


def together(chosen: dict[str, list[Any]]) -> dict[str, Any]:
    """What several of these functions find, by their names."""
    return {name: globals()[name](*arguments) for name, arguments in chosen.items()}


def nvml(failing: list[str]) -> list[Any]:
    """A cell for each list of calls that fail."""
    found = []
    for calls in failing:
        os.environ["MOCKGPU_NVML"] = calls
        gpu_of.cache_clear()
        found.append(measured(["bnp"], "eager")["bnp"])
    del os.environ["MOCKGPU_NVML"]
    gpu_of.cache_clear()
    return found


def profiled() -> dict[str, Any]:
    """Device time of the backward pass in kernels of the mock, and kernels a step; or why not."""
    (one,) = (cell(**{**NETWORKS["fc"], "device": "cuda", "method": "bnp", "optimizer": {"kind": "sgd", "lr": 0.1}}),)
    with TemporaryDirectory() as folder:
        found = profile(Profile(one, 3, None, 0, Path(folder) / "trace.json"))
    times = {name: time.device for name, time in found.phases.items()}
    return {"kernels": found.kernels, "untold": found.untold, "phases": times, "step": found.step.device}


def deterministic() -> list[Any]:
    """Work of a step, without and with deterministic algorithms."""
    found = []
    for wanted in (False, True):
        ours = made("fc", "bn", deterministic=wanted)
        (batch,) = ours.examples.training(torch.arange(256), 256, 0)
        ours.step(*batch)
        with events() as stepping:
            ours.step(*batch)
        found.append(counted(stepping))
    return found


def fp16() -> list[Any]:
    """Work of a step that scales its loss, eagerly and from a graph."""
    found = []
    for engine in ("eager", "graphed"):
        ours = made("fc", "bnp", precision="fp16", engine=engine)
        ours.prepare()
        (batch,) = ours.examples.training(torch.arange(256), 256, 0)
        ours.engine.call(*batch)
        with events() as stepping:
            ours.engine.call(*batch)
        found.append({"active": ours.engine.active, "step": counted(stepping)})
    return found


def memory() -> dict[str, Any]:
    """Of members of a block, in two orders and alone; and of one that does not warm up."""
    without_compiler()
    found = {
        f"{engine} {' '.join(chosen)}": measured(chosen, engine)
        for engine in ("eager", "graphed")
        for chosen in (["vanilla", "bnp"], ["bnp", "vanilla"], ["bnp"])
    }
    return {**found, "eager cold": measured(["bnp"], "eager", warmup=0)}


def broken_capture() -> dict[str, Any]:
    """A block one of whose steps reads back to the host, and the current stream afterwards."""
    without_compiler()
    limits = BatchRenorm.limits

    def reading(self: BatchRenorm) -> Any:
        found = limits(self)
        found[0].item()
        return found

    BatchRenorm.limits = reading  # type: ignore[method-assign]
    rows = measured(["vanilla", "renorm", "bn", "bnp"], "graphed")
    BatchRenorm.limits = limits  # type: ignore[method-assign]
    return {"rows": rows, "stream": torch.cuda.current_stream() == torch.cuda.default_stream()}


def failed_capture() -> list[Any]:
    """A cell whose capture comes to nothing, whatever its step does; and one after it."""
    without_compiler()
    os.environ["MOCKGPU_CAPTURE_FAILS"] = "1"
    failed = measured(["bnp"], "graphed")["bnp"]
    del os.environ["MOCKGPU_CAPTURE_FAILS"]
    return [failed, measured(["bnp"], "graphed")["bnp"]]


def out_of_memory() -> dict[str, Any]:
    """A block one of whose cells is out of memory, and what is allocated when the next is set up."""
    allocated: dict[str, int] = {}

    def make(one: Any, *arguments: Any, **options: Any) -> Trainer:
        allocated[one.label] = torch.cuda.memory_allocated()
        made = Trainer(one, *arguments, **options)
        if one.label == "bn":
            made.held = made.state, made  # a cycle, as hooks make
            made.warm_up = fails
        return made

    def fails(epochs: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Made up.")

    rows = measured(["vanilla", "bn", "bnp"], "eager", make)
    os.environ["MOCKGPU_BYTES"] = str(200 << 20)
    wide = measured(["vanilla"], "eager", text=TEXT.replace("256", "1_000_000"))
    return {"rows": rows, "allocated": allocated, "wide": wide["vanilla"]}


if __name__ == "__main__":
    _, name, arguments = sys.argv
    print(json.dumps(globals()[name](*json.loads(arguments))))
