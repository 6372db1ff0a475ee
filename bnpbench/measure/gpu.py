"""What NVML tells of a CUDA device. It may not be there, not know, or fail: then the answer is None, with a reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any, TypeVar

import psutil
import torch

T = TypeVar("T")

_REASONS = {
    "power": ("nvmlClocksEventReasonSwPowerCap", "nvmlClocksThrottleReasonHwPowerBrakeSlowdown"),
    "heat": ("nvmlClocksEventReasonSwThermalSlowdown", "nvmlClocksThrottleReasonHwThermalSlowdown"),
    "power or heat": ("nvmlClocksThrottleReasonHwSlowdown",),
}


class Gpu:
    """One CUDA device as NVML knows it, found by its UUID: the two number devices in different orders.

    Args:
        index: torch's number of the device.

    Attributes:
        untold: why questions were not answered, by what was asked.
        mig: whether it is a slice of a GPU; clocks, power and energy are then the whole GPU's.
    """

    def __init__(self, index: int) -> None:
        self.untold: dict[str, str] = {}
        self.mig = False
        self._own = self._whole = None
        found = self._answer("NVML", lambda nvml: self._found(nvml, index))
        if found is not None:
            self._own, self._whole, self.mig = found

    def clock_mhz(self) -> float | None:
        """The clock of its multiprocessors at this moment, MHz."""
        return self._of_whole("clock", lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)))

    def slowed(self) -> str | None:
        """What slows its clock at this moment: power, heat; empty for nothing."""

        def read(nvml: Any, gpu: Any) -> str:
            reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
            bits = {why: sum(getattr(nvml, name) for name in names) for why, names in _REASONS.items()}
            return ", ".join(why for why, of in bits.items() if reasons & of)

        return self._of_whole("throttling", read)

    def joules(self) -> float | None:
        """Energy that the device has used since its driver was loaded."""
        if self.mig:
            self.untold["energy"] = "the device is a slice of a GPU (MIG), and NVML counts the energy of the whole"
            return None
        return self._of_whole("energy", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3)

    def others(self) -> list[str]:
        """Names and numbers of processes of others that compute on it; of names only the last part."""

        def read(nvml: Any) -> list[str]:
            running = [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(self._own)]
            ours = {os.getpid(), *(child.pid for child in psutil.Process(os.getppid()).children())}
            others = [number for number in running if number not in ours]
            if os.getpid() not in running and others and self._has_context():
                # NVML counts as the host does: in a container this process has another number there.
                strange = [number for number in others if not psutil.pid_exists(number)]
                others = [number for number in others if number not in strange[:1]]
            return [f"{_name(nvml, number)} ({number})" for number in others]

        return self._answer("other processes", read) or []

    def settings(self) -> dict[str, Any]:
        """What is set of it, None where NVML does not tell: power limit, clocks, whether the driver stays loaded."""
        return {
            "power_limit_watts": self._of_whole(
                "power limit", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3
            ),
            "most_clock_mhz": self._of_whole(
                "highest clock", lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
            ),
            "set_clock_mhz": self._of_whole(
                "set clock", lambda nvml, gpu: nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM)
            ),
            "persistence": self._of_whole(
                "persistence", lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu))
            ),
            "mig": self.mig,
        }

    def _has_context(self) -> bool:
        return torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 0

    def _found(self, nvml: Any, index: int) -> tuple[Any, Any, bool]:
        nvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(index).uuid
        try:
            gpu = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            return gpu, gpu, False
        except nvml.NVMLError_NotFound:
            slice_ = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return slice_, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_), True

    def _of_whole(self, what: str, read: Callable[[Any, Any], T]) -> T | None:
        return self._answer(what, lambda nvml: read(nvml, self._whole))

    def _answer(self, what: str, read: Callable[[Any], T]) -> T | None:
        import pynvml

        if what != "NVML" and self._whole is None:
            return None
        try:
            return read(pynvml)
        except (
            Exception
        ) as error:  # whatever a driver, or a version of NVML's module, comes up with: no cell ends by it
            self.untold[what] = f"NVML: {str(error) or type(error).__name__}"
            return None


@cache
def gpu_of(device: torch.device) -> Gpu:
    """The device as NVML knows it, looked up once."""
    return Gpu(torch.cuda.current_device() if device.index is None else device.index)


def _name(nvml: Any, number: int) -> str:
    """Of a process; without the folders, which may bear a user's name."""
    try:
        name = nvml.nvmlSystemGetProcessName(number)
    except nvml.NVMLError:
        return "process"
    return PurePath(name.decode(errors="replace") if isinstance(name, bytes) else str(name)).name or "process"
