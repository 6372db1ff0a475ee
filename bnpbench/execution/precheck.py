"""What can be refused before torch is imported, which takes seconds: a device that is not there, data that may not be
fetched."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bnpbench.datasets import storage
from bnpbench.errors import DataError, DeviceError

if TYPE_CHECKING:
    from bnpbench.datasets.base import DatasetPlugin
    from bnpbench.suite import Settings

CUDA_DRIVER = ("libcuda.so.1", "nvcuda.dll")
ROCM = Path("/dev/kfd")  # torch calls AMD's GPUs "cuda" too, and no NVIDIA driver knows of them


def device_index(asked: str) -> int | None:
    """The number in ``cuda:i``, 0 for ``cuda`` and ``auto``, None for ``cpu``. Raises DeviceError for anything else."""
    name, colon, index = asked.partition(":")
    if name in ("auto", "cpu") and not colon:
        return 0 if name == "auto" else None
    if name != "cuda" or (colon and not index.isdecimal()):
        raise DeviceError(f"--device {asked}: give auto, cpu, cuda or cuda:i")
    return int(index or 0)


def check_device(asked: str, where: str, remedy: str = "use --device cpu") -> None:
    """Raises DeviceError where the driver already says that the device is not there.

    Args:
        asked: auto, cpu, cuda or cuda:i.
        where: begins the message.
        remedy: what else can be done than to look for a GPU.
    """
    index = device_index(asked)
    count = None if asked == "auto" or index is None else driver_count()
    if count is not None and index is not None:
        demand_device(where, index, count, remedy)


def likely_device(asked: str) -> Literal["cpu", "cuda"]:
    """What ``--device`` probably means, before torch is asked: ``auto`` is CUDA where the driver shows a device."""
    return "cpu" if device_index(asked) is None or (asked == "auto" and driver_count() == 0) else "cuda"


def resolve_device(asked: str, count: int) -> Literal["cpu", "cuda"]:
    """What ``--device`` means where torch sees so many devices. Raises DeviceError."""
    index = device_index(asked)
    if index is None or (asked == "auto" and not count):
        return "cpu"
    demand_device(f"--device {asked}", index, count)
    return "cuda"


def demand_device(where: str, index: int, count: int, remedy: str = "use --device cpu") -> None:
    """Raises DeviceError unless there are more than ``index`` devices; see ``check_device``."""
    if count == 0:
        raise DeviceError(
            f"{where}: torch sees no CUDA device here; {remedy}, or install a CUDA build of torch on a machine with a "
            "GPU and its driver"
        )
    if index >= count:
        raise DeviceError(f"{where}: this machine has {count} CUDA device(s), numbered from 0")


def check_cuda_only(settings: Iterable[Settings]) -> None:
    """Raises DeviceError for what only a CUDA device can do, asked for on the CPU."""
    for cell in settings:
        if cell.device == "cpu" and cell.engine == "graphed":
            raise DeviceError('engine = "graphed" records CUDA graphs; on the CPU take "eager" or "compiled"')
        if cell.device == "cpu" and cell.precision == "tf32":
            raise DeviceError(
                'precision = "tf32" is a mode of CUDA devices; on the CPU take "float32" or "bf16" '
                "(--only precision=float32 leaves its cells out)"
            )


def demand_devices(devices: int, device: str, *, first: int, gpus: int, cores: int) -> None:
    """Raises DeviceError unless a cell can have so many devices.

    Args:
        devices: how many the cell asks for.
        device: cpu or cuda.
        first: number of the first GPU; the others follow it.
        gpus: of this machine.
        cores: that a cell may use.
    """
    if devices == 1:
        return
    if device == "cuda" and first + devices > gpus:
        raise DeviceError(
            f"devices = {devices}: this machine has {gpus} CUDA device(s), {gpus - first} from cuda:{first} on"
        )
    if device == "cpu" and devices > cores:
        raise DeviceError(f"devices = {devices}: on the CPU each takes a core, and a cell has {cores} here")


def check_data(datasets: Iterable[type[DatasetPlugin]], data_dir: Path | None, offline: bool) -> None:
    """Raises DataError for a data set that is not there, or damaged, and may not be fetched."""
    root = storage.root(data_dir)
    for dataset in sorted(datasets, key=lambda cls: str(cls.name())) if storage.is_offline(offline) else ():
        if (reason := dataset.unfit(root)) is not None:
            raise DataError(f"{reason} (offline: nothing is downloaded)")


def driver_count() -> int | None:
    """How many devices the CUDA driver shows to this process; None where only torch can tell."""
    if ROCM.exists():
        return None
    for name in CUDA_DRIVER:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        return 0 if failed else count.value
    return 0
