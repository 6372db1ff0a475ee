"""The session of a machine with a GPU, ``tests/benchmarks/gpu.py``: its order, its limits, its archive."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.benchmarks import gpu
from tests.support.mockgpu import MockGpu

ORDER = [
    "environment",
    "tests",
    "profile-256",
    "profile-16",
    "timing-eager",
    "timing-graphed",
    "tests-that-compile",
    "crossover-1024",
    "crossover-100",
]


def python(name: str, seconds: float, code: str) -> gpu.Part:
    return gpu.Part(name, seconds, [sys.executable, "-c", code])


def test_a_part_that_fails_or_hangs_keeps_no_later_one_from_running(tmp_path: Path) -> None:
    found, archive = tmp_path / "found", tmp_path / "out.tar.gz"
    found.mkdir()
    chosen = [
        python("writes", 60, f"open({str(found / 'written')!r}, 'w').write('x'); print('said')"),
        python("fails", 60, "raise SystemExit(3)"),
        python("hangs", 1, "import time; print('begun', flush=True); time.sleep(600)"),
        gpu.Part("packed", 60, ["tar", "-tzf", str(archive)]),
        python("too late", 60, "import time; time.sleep(600)"),
        python("never", 60, ""),
    ]
    statuses = gpu.session(chosen, found, archive, dict(os.environ), limit=5.0)
    how = {name: " ".join(status.split()[:3]).removesuffix(" after") for name, status in statuses.items()}
    assert how["writes"].startswith("ok")
    assert how["fails"] == "exit code 3"
    assert how["hangs"].startswith("stopped")
    assert how["packed"].startswith("ok")
    assert how["too late"].startswith("stopped")
    assert how["never"] == "not run: no"
    with tarfile.open(archive) as tar:
        names = {Path(name).name for name in tar.getnames()}
        hangs = tar.extractfile("gpu/hangs.log")
        assert hangs is not None
        assert hangs.read() == b"begun\n"
    assert {"written", "statuses.txt", "writes.log", "too late.log"} <= names
    assert "gpu/written" in (found / "packed.log").read_text().split()


def test_the_order_and_the_limits(tmp_path: Path) -> None:
    parts = gpu.parts(tmp_path, "cuda", dry=False)
    assert [part.name for part in parts] == ORDER
    *limited, first, last = parts
    assert sum(part.seconds for part in limited) <= gpu.LIMIT - 120  # the rest is the crossing's
    assert first.seconds == last.seconds == gpu.LIMIT == 540


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_a_dry_run_on_the_mock(mockgpu: MockGpu, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = mockgpu.run("tests/benchmarks/gpu.py", "--dry", "--out", str(out), timeout=580)
    begun = [line for line in done.stdout.splitlines() if line.startswith("=== ")]
    limits = [f"=== {part.name}, at most {part.seconds:.0f} s ===" for part in gpu.parts(tmp_path, "cuda", dry=True)]
    assert begun[:-2] == limits[:-2], done.stdout
    assert [line.partition(",")[0] for line in begun[-2:]] == ["=== crossover-1024", "=== crossover-100"]
    told = [line.partition(": ") for line in done.stdout.splitlines() if " after " in line and line.endswith(" s")]
    assert [name for name, _, _ in told] == ORDER
    assert {status.partition(" ")[0] for _, _, status in told} == {"ok"}, done.stdout
    assert done.returncode == 0
    assert [path.name for path in out.iterdir()] == ["gpu.tar.gz"]
    with tarfile.open(out / "gpu.tar.gz") as tar:
        names = {Path(name).name for name in tar.getnames()}
    assert {"gpu-timing.toml", "bnp-256.trace.json", "environment.json", *(f"{name}.log" for name in ORDER)} <= names
