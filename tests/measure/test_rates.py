"""Peak rates: measured on small work, kept, and found again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bnpbench.measure import known, rates


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rates, "SMALLEST_ARRAY", 2**14)
    monkeypatch.setattr(rates, "PROCESSORS", tmp_path / "none")
    monkeypatch.setattr(rates, "PRODUCT", {"cpu": 32, "cuda": 32})
    monkeypatch.setattr(rates, "KERNELS", {"oneDNN": rates.KERNELS["oneDNN"]})  # the other compiles
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_every_rate_has_its_spread(small: None) -> None:
    threads = torch.get_num_threads()
    found = rates.measure()
    assert torch.get_num_threads() == threads
    told = [rate for rate in found.rates if rate is not None]
    on_cpu = [rate for rate in told if rate.device == "cpu"]
    assert {rate.quantity for rate in on_cpu} == {"bandwidth", "float32", "operators", "core"}
    assert {rate.threads for rate in on_cpu} >= {1}
    for rate in told:
        assert 0 < rate.low <= rate.median <= rate.high
        assert rate.repetitions == rates.REPETITIONS
    assert found.libraries
    assert not any("/" in line for line in found.libraries)


@pytest.mark.regression
@pytest.mark.parametrize(("allowed", "threads"), [([1], {1}), ([0, 2], {1, 2}), (None, {1, 3}), ([0, 1, 2, 3], {1, 3})])
def test_no_more_threads_than_the_process_may_use_cores(
    small: None, monkeypatch: pytest.MonkeyPatch, allowed: list[int] | None, threads: set[int]
) -> None:
    """All physical cores were taken, which then waited for each other."""
    monkeypatch.setattr(known, "affinity", lambda: allowed)
    monkeypatch.setattr("psutil.cpu_count", lambda logical=True: 3)
    assert {one.threads for one in rates.measure("cpu").rates if one is not None} == threads


def test_amounts_are_the_textbooks(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With work that always takes two seconds, a rate is half the amount."""
    monkeypatch.setattr(rates, "_seconds", lambda work, device: 2.0)  # so that amounts are what is seen
    found = {rate.quantity: rate.median for rate in rates._rates(torch.device("cpu"), 1)}  # one device
    product = 2 * 32**3 / 2
    expected = {"bandwidth": 3 * 2**14 / 2, "float32": product, "operators": rates.LAUNCHES / 2, "core": product}
    assert found == expected


def absent(*_: object) -> Callable[[], torch.Tensor]:
    raise RuntimeError("no such library")


def test_the_core_is_as_fast_as_the_fastest_kernel(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {name: (lambda *_, name=name: lambda: name) for name in ("slow", "quick")} | {"absent": absent}
    seconds = {"slow": 3.0, "quick": 0.5}
    monkeypatch.setattr(rates, "KERNELS", kernels)
    monkeypatch.setattr(rates, "_seconds", lambda work, device: seconds.get(str(work()), 2.0))  # instead of a clock
    for fastest, rate in (("quick", 2 * 32**3 / 0.5), ("torch.mm", 2 * 32**3 / 2)):
        found = {one.quantity: one for one in rates._rates(torch.device("cpu"), 1)}  # one device
        assert (found["core"].kernel, found["core"].median) == (fastest, rate)
        assert found["float32"].median == 2 * 32**3 / 2
        assert "kernel" not in found["float32"].document()
        seconds["quick"] = 4.0


@pytest.mark.parametrize("kernel", rates.KERNELS)
def test_every_kernel_computes_the_product(kernel: str) -> None:
    x, y = torch.randn(48, 32), torch.randn(32, 64)
    found = rates.KERNELS[kernel](x, y)()
    torch.testing.assert_close(found.double(), x.double() @ y.double(), rtol=0, atol=1e-4)


@pytest.mark.regression
def test_the_compiler_says_nothing_of_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    """A machine with CUDA's compiler and no GPU had a warning of torch in the middle of what is told."""
    code = (
        "import torch; from bnpbench.measure import rates; rates._by_inductor(torch.ones(48, 32), torch.ones(32, 64))"
    )
    home = {**os.environ, "CUDA_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=home, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_is_larger_than_the_last_caches(small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for processor, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):  # two caches, each of two processors
        cache = tmp_path / f"cpu{processor}/cache/index3"
        cache.mkdir(parents=True)
        (cache / "size").write_text("64K\n")
        (cache / "shared_cpu_list").write_text(f"{shared}\n")
    monkeypatch.setattr(rates, "PROCESSORS", tmp_path)
    assert rates._array_bytes(torch.device("cpu")) == 4 * 2 * 64 * 1024  # seen in no rate
