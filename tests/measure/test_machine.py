"""Readings beside the time: energy and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest
import torch

from bnpbench.measure import machine
from bnpbench.measure.machine import DeviceMemory, EnergyMeter


@pytest.mark.regression
def test_energy_goes_on_where_its_counter_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is after some hundred kilojoules: an epoch across it had taken less than none."""
    domains = [tmp_path / f"intel-rapl:{number}" for number in range(2)]
    for domain in domains:
        domain.mkdir()
        (domain / "name").write_text(f"package-{domain.name[-1]}\n")
        (domain / "max_energy_range_uj").write_text("10000000\n")
        (domain / "energy_uj").write_text("9000000\n")
    monkeypatch.setattr(machine, "RAPL", tmp_path)
    meter = machine.energy_meter(torch.device("cpu")).read
    assert meter() == 0
    (domains[0] / "energy_uj").write_text("500000\n")
    (domains[1] / "energy_uj").write_text("9250000\n")
    assert meter() == pytest.approx(1.5 + 0.25)


@pytest.mark.regression
def test_only_packages_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors list the whole platform too: its energy was added to that of its own part."""
    for place, name in (("0", "package-0"), ("0:0", "core"), ("1", "psys"), ("10", "package-10")):
        (domain := tmp_path / f"intel-rapl:{place}").mkdir()
        (domain / "name").write_text(f"{name}\n")
        (domain / "energy_uj").write_text("0\n")
    monkeypatch.setattr(machine, "RAPL", tmp_path)
    meter = machine.energy_meter(torch.device("cpu")).read
    for domain in tmp_path.iterdir():
        (domain / "energy_uj").write_text("1000000\n")
    assert meter() == pytest.approx(2.0)


class Allocator:
    """Counts bytes as torch's CUDA allocator does."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0

    def take(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def reset(self) -> None:
        self.peak = self.allocated


@pytest.mark.regression
def test_energy_of_a_moment_is_not_known() -> None:
    """NVML's counter moves every 20 to 100 ms: an epoch of milliseconds had used nothing, or what ten of them use."""
    counter = iter([100.0, 100.0, 120.0])
    meter = EnergyMeter(counter.__next__, interval=0.1)
    assert meter.used(99.0, seconds=0.004) is None
    assert meter.used(90.0, seconds=1.0) == 10.0
    assert meter.used(None, seconds=1.0) is None


@pytest.mark.regression
def test_each_has_its_own_peak_and_only_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak of an interleaved block on CUDA was one number for all of its cells; later it was that of compiling."""
    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocator.allocated)
    allocator.take(1000)  # data that both read
    small, large = (DeviceMemory(torch.device("cuda")) for _ in range(2))
    for member, size in ((small, 10), (large, 50)):
        with member.turn():
            allocator.take(size)  # the weights stay
            allocator.take(10_000)  # as while it is compiled
            allocator.take(-10_000)
    for _ in range(2):
        for member, size in ((large, 500), (small, 100)):
            with member.turn():
                allocator.reset()
                allocator.take(size)  # a step's own
                allocator.take(-size)
                member.stepped(allocator.peak)
    assert (small.held, small.peak) == (10, 110)
    assert (large.held, large.peak) == (50, 550)


Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")


class Told:
    """A process of a made-up machine."""

    def __init__(self, seconds: float, children: tuple[Told, ...] = (), line: str = "", parent: Told | None = None):
        self.seconds, self.below, self.line, self.above = seconds, children, line, parent

    def parents(self) -> list[Told]:
        return [] if self.above is None else [self.above, *self.above.parents()]

    def parent(self) -> Told | None:
        return self.above

    def cmdline(self) -> list[str]:
        return ["python", "-c", self.line]

    def cpu_affinity(self) -> list[int]:
        return [0, 2]

    def cpu_times(self) -> tuple[float, float, float, float, float]:
        if self.seconds < 0:
            raise psutil.NoSuchProcess(1)
        return self.seconds, 0.5, 2.0, 0.25, 9.0  # user, system, those of children, iowait

    def children(self, recursive: bool) -> list[Told]:
        return list(self.below)


def test_the_run_and_all_that_it_started_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process, the forkserver, the child that measures and its loaders, on the cores that it may use."""
    shell = Told(500.0)
    run = Told(10.0, parent=shell)
    server = Told(1.0, line="from multiprocessing.forkserver import main; main(...)", parent=run)
    child, ended = Told(20.0, parent=server), Told(-1.0)
    run.below = (server, child, ended)
    cores = [Times(60, 2, 8, 900, 30, 1, 1, 3, 5, 1), Times(1000, 0, 0, 0, 0, 0, 0, 0, 0, 0), Times(*[10.0] * 10)]
    monkeypatch.setattr(machine.psutil, "Process", lambda: child)
    monkeypatch.setattr(machine.psutil, "cpu_times", lambda percpu: cores)
    busy = (60 + 2 + 8 + 1 + 1 + 3) + 6 * 10
    assert machine.seconds_of_others() == pytest.approx(busy - (10 + 1 + 20) - 3 * 2.75)


def test_another_process_is_seen() -> None:
    """One that an ended shell left behind, so that it is no child of ours."""
    line = [sys.executable, "-c", "while True: pass"]
    told = subprocess.run(["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *line], capture_output=True, check=True)
    try:
        before, begin = machine.seconds_of_others(), time.perf_counter()
        time.sleep(1.5)
        found = machine.average_cores(before, machine.seconds_of_others(), time.perf_counter() - begin)
    finally:
        os.kill(int(told.stdout), signal.SIGKILL)
    assert before is None or (found is not None and found > 0.25)


def test_a_moment_tells_nothing_of_others() -> None:
    assert machine.average_cores(3.0, 4.0, 2.0) == 0.5
    assert machine.average_cores(4.0, 3.9, 2.0) == 0  # clocks of both sides tick apart
    assert machine.average_cores(3.0, 4.0, 0.1) is None
    assert machine.average_cores(None, 4.0, 2.0) is None
