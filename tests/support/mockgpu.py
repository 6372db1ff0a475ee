"""A process on a machine with GPUs that are none: builds ``tests/mockgpu`` and runs things under it."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from tests.support.command import environment

SOURCES = Path(__file__).parents[1] / "mockgpu"
ROOT = SOURCES.parents[1]
NETWORKS = ["fc", "cnn", "resnet8"]
WORK = {"work kernel", "work memset", "work on-device"}
NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")  # by which the driver and NVML are looked for

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
