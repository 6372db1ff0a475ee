"""What the CUDA driver tells without torch, whose import takes seconds: how many devices, which, or why none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NO_DEVICE = 100  # of cuInit
_MAJOR, _MINOR = 75, 76  # attributes: of the compute capability
CUDA_DRIVER = ("libcuda.so.1", "nvcuda.dll")
ROCM = Path("/dev/kfd")  # torch calls AMD's GPUs "cuda" too, and no NVIDIA driver knows of them


@dataclass(frozen=True)
class Device:
    """A CUDA device.

    Attributes:
        name: as its maker gives it.
        capability: of its multiprocessors, such as 9.0.
    """

    name: str
    capability: str


def driver_count(libraries: Sequence[str] = CUDA_DRIVER, rocm: Path = ROCM) -> int | None:
    """How many devices the CUDA driver shows to this process; None where only torch can tell."""
    if rocm.exists():
        return None
    for driver in _drivers(libraries):
        count = ctypes.c_int(0)
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        return 0 if failed else count.value
    return 0


def driver_failure(libraries: Sequence[str] = CUDA_DRIVER) -> str | None:
    """What the CUDA driver says where it is there and cannot be started; None else."""
    for driver in _drivers(libraries):
        if (error := driver.cuInit(0)) in (0, _NO_DEVICE):
            return None
        told = ctypes.c_char_p()
        driver.cuGetErrorName(error, ctypes.byref(told))
        return f"the CUDA driver cannot be started: cuInit gives {error} ({(told.value or b'unknown').decode()})"
    return None


def driver_cuda(libraries: Sequence[str] = CUDA_DRIVER) -> int | None:
    """The newest CUDA version that the driver works with, its major number; None without a driver."""
    for driver in _drivers(libraries):
        version = ctypes.c_int(0)
        return None if driver.cuDriverGetVersion(ctypes.byref(version)) else version.value // 1000
    return None


def driver_device(index: int, libraries: Sequence[str] = CUDA_DRIVER) -> Device | None:
    """A device by the number that torch has for it, too; None where the driver does not tell."""
    for driver in _drivers(libraries):
        handle, name, major, minor = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
            return None
        failed = driver.cuDeviceGetName(name, len(name), handle)
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, handle)
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, handle)
        return None if failed else Device(name.value.decode(errors="replace"), f"{major.value}.{minor.value}")
    return None


def _drivers(libraries: Sequence[str]) -> Iterator[Any]:
    for name in libraries:
        try:
            yield ctypes.CDLL(name)
        except OSError:
            continue
