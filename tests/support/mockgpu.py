"""A process on a machine with GPUs that are none: builds ``tests/mockgpu`` and runs things under it."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from bnpbench.methods.base import MethodPlugin
from bnpbench.registry import built_in
from tests.support.command import environment

SOURCES = Path(__file__).parents[1] / "mockgpu"
ROOT = SOURCES.parents[1]
NETWORKS = ["fc", "cnn", "resnet8"]
METHODS: list[Any] = [  # every one by its kind, and options that take another way
    *built_in().kinds(MethodPlugin),
    {"kind": "bnp", "statistics": "batch"},
    {"kind": "bnp", "form": "plain"},
    {"kind": "bn", "input": True},
    {"kind": "4things", "ghost_batch": 8},
]
ENGINES = ["eager", "graphed(eager)", "graphed(compiled)"]
COMPILED_AT_ONCE: dict[str, list[Any]] = {
    "fc": [
        "bn",
        "bnp",
        "bnp-full",
        "eva",
        "ghost-bn",
        "ln",
        "renorm",
        "vanilla",
        {"kind": "bnp", "statistics": "batch"},
        {"kind": "bnp", "form": "plain"},
    ],
    "cnn": ["bnp+gn"],
}  # one of each way to compute; the others take minutes to compile
WORK = {"work kernel", "work memset", "work on-device"}
NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")  # by which the driver and NVML are looked for

SEEN = "step on the mock GPU"
"""Property of a test's report: the network, the method and the engine of a step that it has looked at."""
NOT_APPLICABLE = "not applicable"

Row = dict[str, Any]
"""What ``checks.steps`` found of a method on a network."""


def unfit() -> str | None:
    """Why the mock cannot be built here, or None."""
    version = torch.version.cuda
    if version is None or not version.startswith("13."):
        return f"the mock is of CUDA 13, and torch was built {f'for CUDA {version}' if version else 'without CUDA'}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the mock is for Linux on x86-64"
    return None if shutil.which("g++") else "the mock needs g++"


@dataclass(frozen=True)
class MockGpu:
    """The built mock.

    Attributes:
        folder: of the library; the caches of whoever runs under it lie there too.
    """

    folder: Path

    @classmethod
    def built(cls, folder: Path) -> MockGpu:
        """Build it, once, whoever else is about to."""
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "libmockgpu.so"
        with FileLock(folder / "lock"):
            if not library.exists():
                spec = find_spec("triton")
                assert spec is not None
                assert spec.origin is not None
                headers = Path(spec.origin).parent / "backends/nvidia/include"
                fresh = folder / "fresh.so"
                options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{headers}"]
                sources = sorted(map(str, SOURCES.glob("*.cpp")))
                subprocess.run(["g++", *options, *sources, "-o", str(fresh), "-ldl", "-lpthread"], check=True)
                for name in NAMES:
                    (folder / name).symlink_to(library.name)
                fresh.rename(library)
        return cls(folder)

    def variables(self, **asked: object) -> dict[str, str]:
        """The environment of a process under the mock, with what is asked of it: ``devices=2`` is MOCKGPU_DEVICES."""
        told = {f"MOCKGPU_{name.upper()}" if name.islower() else name: str(value) for name, value in asked.items()}
        return {
            "LD_PRELOAD": str(self.folder / "libmockgpu.so"),
            "LD_LIBRARY_PATH": str(self.folder),  # where dlopen finds the driver and NVML
            "TRITON_LIBCUDA_PATH": str(self.folder),
            "TRITON_CACHE_DIR": str(self.folder / "cache/triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache/inductor"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
            **told,
        }

    def run(
        self, *command: str, cwd: Path = ROOT, timeout: float = 280, **asked: object
    ) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, to its end."""
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            env=environment(self.variables(**asked)),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def found(self, check: str, *arguments: Any, timeout: float = 280, **asked: object) -> Any:
        """What a function of ``tests/mockgpu/checks.py`` finds in a process of its own."""
        done = self.run("-m", "tests.mockgpu.checks", check, json.dumps(arguments), timeout=timeout, **asked)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def applicable(rows: list[Row]) -> list[Row]:
    """Those of methods that have a meaning on their network."""
    found = [row for row in rows if "step" in row]
    assert found
    return found


def name(method: Any) -> str:
    """Of a method, with its options."""
    if isinstance(method, str):
        return method
    return f"{method['kind']}({', '.join(f'{key}={value}' for key, value in method.items() if key != 'kind')})"


def work(row: Row) -> int:
    """Kernels, fills and copies that a step queues, without the copy of its arguments into those of a graph."""
    return int(sum(row["step"].get(kind, 0) for kind in WORK) - row["step"].get("replay", 0))


def seen(rows: Iterable[Row], record: Callable[[str, object], None]) -> None:
    """Tell pytest's summary of steps that were looked at; ``record`` is its ``record_property``."""
    for row in rows:
        record(SEEN, [row["network"], name(row["method"]), row.get("active", NOT_APPLICABLE)])


def summary(found: set[tuple[str, ...]]) -> list[str]:
    """How many steps were looked at, engine by engine, and which were not, though ``nox -s mockgpu`` does.

    Args:
        found: network, method and engine of each, or NOT_APPLICABLE.
    """
    names = [name(method) for method in METHODS]
    there = {one: [m for m in names if (one, m, NOT_APPLICABLE) not in found] for one in NETWORKS}
    lines = []
    for engine in ENGINES:
        left = {one: [m for m in methods if (one, m, engine) not in found] for one, methods in there.items()}
        wanted, missing = (sum(map(len, methods.values())) for methods in (there, left))
        lines.append(f"{engine}: {wanted - missing} of {wanted}")
        for one, methods in left.items():
            if methods:
                lines.append(
                    f"  {len(methods)} left of {one}: {'all' if methods == there[one] else ', '.join(methods)}"
                )
    if len(lines) > len(ENGINES):
        lines.append("what is left takes minutes to compile, or was not asked for: nox -s mockgpu looks at it all")
    return lines
