"""How many pieces of work a step queues on a CUDA device, as CUPTI tells torch's profiler."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
NO_CUPTI = (
    "the profiler saw no kernel: CUPTI is not there, or this user may not read the GPU's counters (run as root, or "
    "load the driver with NVreg_RestrictProfilingToAdminUsers=0)"
)


def kernels_of(work: Callable[[], object]) -> int | None:
    """Kernels, fills and copies on the device that ``work`` queues; None where the profiler sees none."""
    try:
        with profile(activities=ACTIVITIES) as profiler:
            work()
            torch.cuda.synchronize()
        return len(on_device(profiler)) or None
    except Exception:  # torch documents no set of errors, and nothing that was measured depends on this
        traceback.print_exc()
        return None


def on_device(profiler: profile) -> list[Any]:
    """The profiler's events of the device: kernels, fills and copies."""
    return [e for e in profiler.events() or () if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
