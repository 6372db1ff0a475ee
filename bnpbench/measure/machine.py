"""Readings beside the time: clock rates, energy, peak memory. Null where the machine does not tell."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from bnpbench.measure.gpu import gpu_of
from bnpbench.records.rows import COUNTER_SECONDS, LEAST_BLOCK_SECONDS, LEAST_TICKS

RAPL = Path("/sys/class/powercap")


def clock_mhz(device: torch.device) -> float | None:
    """Current clock rate of the device in MHz. Of a GPU that is idle it says little."""
    if device.type == "cuda":
        return gpu_of(device).clock_mhz()
    frequency = psutil.cpu_freq()
    return float(frequency.current) if frequency and frequency.current else None


def throttled(device: torch.device) -> bool | None:
    """Whether the GPU slows itself down for heat or power at this moment, which it only does while it works."""
    if device.type != "cuda" or (why := gpu_of(device).slowed()) is None:
        return None
    return bool(why)


def others(device: torch.device) -> list[str]:
    """Processes of others that compute on a CUDA device; of a CPU there are always some."""
    return gpu_of(device).others() if device.type == "cuda" else []


def seconds_of_others() -> float | None:
    """CPU seconds that processes of others took on the cores of this run, since some fixed moment; of a virtual machine
    also those that its host gave to others. None where the machine does not tell.

    The run's own processes are all that descend from the one that has the forkserver, this one and its loaders among
    them; what a process that ended has taken is kept by its parent.
    """
    own = psutil.Process()
    with suppress(psutil.Error):
        servers = [one for one in own.parents() if any("multiprocessing.forkserver" in word for word in one.cmdline())]
        root = (servers[0].parent() if servers else None) or own
        cores = root.cpu_affinity() if hasattr(root, "cpu_affinity") else None
        times = psutil.cpu_times(percpu=True)
        busy = sum(_busy(times[core]) for core in (range(len(times)) if cores is None else cores))
        return busy - sum(map(_taken, [root, *root.children(recursive=True)])) if busy else None
    return None


def average_cores(before: float | None, after: float | None, seconds: float) -> float | None:
    """How many cores others used, from what ``seconds_of_others`` gave and the seconds between.

    None where nobody tells, and where a tick of 10 ms on each of two cores would be more than a twentieth of a core.
    """
    if before is None or after is None or seconds < LEAST_BLOCK_SECONDS:
        return None
    return max(after - before, 0.0) / seconds


@dataclass(frozen=True)
class EnergyMeter:
    """A counter of joules.

    Attributes:
        read: joules since some fixed moment; None where nobody tells.
        interval: seconds after which the counter moves at the latest.
    """

    read: Callable[[], float | None]
    interval: float

    def used(self, before: float | None, seconds: float) -> float | None:
        """Joules since ``read`` gave ``before``, so many seconds ago; None where a tick more or less would be more than
        a tenth of it."""
        now = self.read()
        if before is None or now is None or seconds < LEAST_TICKS * self.interval:
            return None
        return now - before


def energy_meter(device: torch.device) -> EnergyMeter:
    """On CUDA NVML's counter; on CPU the package domains of RAPL that may be read."""
    if device.type == "cuda":
        return EnergyMeter(gpu_of(device).joules, COUNTER_SECONDS["cuda"])
    domains = [_Domain(p) for p in sorted(RAPL.glob("intel-rapl:*")) if _is_package(p)]
    if not domains:
        return EnergyMeter(lambda: None, 0.0)
    return EnergyMeter(lambda: sum(domain.joules() for domain in domains), COUNTER_SECONDS["cpu"])


def peak_memory_bytes() -> int:
    """Peak bytes resident in this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class DeviceMemory:
    """What one of several that take turns has allocated on a CUDA device; what the others hold does not count.

    Attributes:
        held: bytes that it holds between its turns.
        peak: the most bytes that it had at once while it took steps.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.held = self.peak = self._others = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around each of its turns; on another device nothing is counted."""
        if self.device.type != "cuda":
            yield
            return
        self._others = torch.cuda.memory_allocated(self.device) - self.held
        try:
            yield
        finally:
            self.held = torch.cuda.memory_allocated(self.device) - self._others

    def stepped(self, allocated: int | None) -> None:
        """It has taken steps in this turn, during which so many bytes were allocated at most, those of all."""
        if allocated is not None:
            self.peak = max(self.peak, allocated - self._others)


def _is_package(domain: Path) -> bool:
    """Whether it is a processor's, whose counter can be read; not a part of one, nor the whole platform."""
    try:
        name = (domain / "name").read_text()
    except OSError:
        return False
    return name.startswith("package") and _number(domain / "energy_uj") is not None


class _Domain:
    """A domain of RAPL, whose counter begins anew at its end: within the hour on a busy machine."""

    def __init__(self, folder: Path) -> None:
        self.counter, self.range = folder / "energy_uj", _number(folder / "max_energy_range_uj") or 0
        self.last, self.used = _number(self.counter) or 0, 0

    def joules(self) -> float:
        now = _number(self.counter)
        if now is not None:
            self.used += now - self.last + (self.range if now < self.last else 0)
            self.last = now
        return self.used / 1e6


def _busy(times: tuple[float, ...]) -> float:
    """Seconds of a core that anybody had; a guest's are among the user's."""
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice")))


def _taken(process: psutil.Process) -> float:
    """CPU seconds of a process, and of its children that ended; 0 of one that has ended itself meanwhile."""
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
