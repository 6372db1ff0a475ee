"""Readings beside the time: clock rates, energy, peak memory. Null where the machine does not tell."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

RAPL = Path("/sys/class/powercap")


def clock_mhz(device: torch.device) -> float | None:
    """Current clock rate of the device in MHz."""
    if device.type == "cuda":
        return float(torch.cuda.clock_rate(device))
    frequency = psutil.cpu_freq()
    return float(frequency.current) if frequency and frequency.current else None


def throttled(device: torch.device) -> bool | None:
    """Whether the GPU slows itself down for heat or power at this moment."""
    if device.type != "cuda":
        return None
    import pynvml

    try:
        handle = _nvml_handle(device)
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError:
        return None
    slow = (
        pynvml.nvmlClocksEventReasonSwPowerCap
        | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        | pynvml.nvmlClocksThrottleReasonHwSlowdown
    )
    return bool(reasons & slow)


def energy_meter(device: torch.device) -> Callable[[], float | None]:
    """A function that gives the joules the device has used since some fixed moment, or None.

    On CUDA NVML's energy counter; on CPU the package domains of RAPL where they may be read.
    """
    if device.type == "cuda":
        return lambda: _nvml_joules(device)
    domains = [_Domain(p) for p in sorted(RAPL.glob("intel-rapl:*")) if _is_package(p)]
    if not domains:
        return lambda: None
    return lambda: sum(domain.joules() for domain in domains)


def peak_memory_bytes() -> int:
    """Peak bytes resident in this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class DeviceMemory:
    """What one of several that take turns has allocated on a CUDA device; what the others hold does not count.

    Attributes:
        held: bytes that it holds between its turns.
        peak: the most bytes that it had at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.held = self.peak = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around each of its turns; on another device nothing is counted."""
        if self.device.type != "cuda":
            yield
            return
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        try:
            yield
        finally:
            self.peak = max(self.peak, self.held + torch.cuda.max_memory_allocated(self.device) - before)
            self.held += torch.cuda.memory_allocated(self.device) - before


def _nvml_handle(device: torch.device):  # type: ignore[no-untyped-def]
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


def _nvml_joules(device: torch.device) -> float | None:
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(_nvml_handle(device))) / 1e3
    except pynvml.NVMLError:
        return None


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


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
