"""What else can change a number: the machine, its driver and the libraries."""

from __future__ import annotations

import os
import platform
import warnings

import psutil
import torch

from bnpbench.measure import known
from bnpbench.measure.gpu import gpu_of
from bnpbench.records.documents import Details, Environment, GpuDetails

CUDA_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "CUDA_MODULE_LOADING",
)
"""Of the environment, that change what a GPU does."""


def describe(gpu: int = 0) -> Environment:
    """The environment of this process.

    Args:
        gpu: number of the CUDA device that is used, where there is one.

    Returns:
        No host or user name, no path.
    """
    gpus, unusable = usable_gpus()
    hardware = known.hardware_with(torch.cuda.get_device_name(gpu) if gpu < gpus else None, gpus)
    # Of torch's version its own class would bring torch to whoever reads the answer.
    software = known.software_with(str(torch.__version__), torch.version.cuda).model_copy(
        update={"cudnn": _cudnn_version(), "blas": "mkl" if torch.backends.mkl.is_available() else "other"}
    )
    return known.named(hardware, software, details(gpu_details(gpu) if gpu < gpus else None, unusable))


def details(gpu: GpuDetails | None, unusable: str | None) -> Details:
    """Settings of the machine that are good to know beside a number.

    Args:
        gpu: the device that is used, if there is one.
        unusable: why torch cannot work with the driver that is there.
    """
    return Details(
        system=f"{platform.system()} {platform.machine()}",
        memory_bytes=psutil.virtual_memory().total,
        affinity=known.affinity(),
        logical_cores=os.cpu_count(),
        governor=known.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        instructions=torch.backends.cpu.get_cpu_capability(),
        mkldnn=torch.backends.mkldnn.is_available(),
        malloc={k: os.environ.get(k) for k in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")},
        variables={name: os.environ[name] for name in CUDA_VARIABLES if name in os.environ},
        gpu=gpu,
        cuda_unusable=unusable,
    )


def gpu_details(index: int) -> GpuDetails:
    """The same of a CUDA device: its size and what it can, what NVML tells of its settings, and what it does not."""
    found, gpu = torch.cuda.get_device_properties(index), gpu_of(torch.device("cuda", index))
    settings = gpu.settings()
    for question in (gpu.clock_mhz, gpu.slowed, gpu.joules):  # as while cells run, for the reasons of no answer
        question()
    return GpuDetails(
        memory_bytes=found.total_memory,
        capability=f"{found.major}.{found.minor}",
        hip=torch.version.hip,
        **settings,
        untold=dict(gpu.untold),
    )


def usable_gpus() -> tuple[int, str | None]:
    """How many CUDA devices torch can use; and why none, where there is a driver and torch cannot work with it."""
    with warnings.catch_warnings(action="ignore"):  # it says that the driver is too old, and so do we
        if torch.cuda.is_available():
            return torch.cuda.device_count(), None
    if torch.version.cuda is None and torch.version.hip is None:
        return 0, None
    try:
        torch.cuda.init()
    except Exception as error:  # torch documents no set of errors
        reason = " ".join(str(error).split())
        return 0, None if "no NVIDIA driver" in reason or "No CUDA GPUs are available" in reason else reason
    return 0, None


def _cudnn_version() -> int | None:
    try:
        return torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    except RuntimeError:  # another one than torch was built with
        return None
