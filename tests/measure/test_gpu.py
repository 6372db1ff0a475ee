"""What NVML tells of a device, and what is said where it does not; the mock GPU has more of it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
import torch

from bnpbench.measure.gpu import Gpu

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Nvml:
    """Answers as the driver does: two GPUs, in the other order than CUDA's; each call may be set to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        properties = SimpleNamespace(uuid=UUID)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        standing = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {f"GPU-{UUID}": "second"}[uuid],
            "nvmlDeviceGetClockInfo": lambda handle, kind: {"second": 1500}[handle],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 4 | 32,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5000,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [],
            "nvmlSystemGetProcessName": lambda number: "/home/somebody/bin/train",
        }
        for name, answer in (standing | answers).items():
            monkeypatch.setattr(pynvml, name, answer)


def fails(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.mark.regression
def test_a_device_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number it was another card, where NVML and CUDA count in different orders."""
    Nvml(monkeypatch)
    gpu = Gpu(0)
    assert (gpu.clock_mhz(), gpu.slowed(), gpu.joules(), gpu.mig, gpu.untold) == (1500.0, "power, heat", 5.0, False, {})


@pytest.mark.regression
def test_no_question_raises_and_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in vars(pynvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    Nvml(monkeypatch, **dict.fromkeys(names, fails))
    gpu = Gpu(0)
    assert (gpu.clock_mhz(), gpu.slowed(), gpu.joules(), gpu.others()) == (None, None, None, [])
    assert set(gpu.settings().values()) == {None, False}
    assert set(gpu.untold.values()) == {"NVML: Not Supported"}
    assert {"clock", "throttling", "energy", "other processes", "power limit"} <= gpu.untold.keys()


def test_without_a_driver_there_is_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml(monkeypatch, nvmlInit=fails)
    gpu = Gpu(0)
    assert (gpu.clock_mhz(), gpu.others(), gpu.untold) == (None, [], {"NVML": "NVML: Not Supported"})


def test_a_slice_has_the_clock_of_the_whole_and_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(uuid: str) -> str:
        if uuid.startswith("GPU"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "slice"

    whole = {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: {"slice": "second"}[handle]}
    Nvml(monkeypatch, nvmlDeviceGetHandleByUUID=handle, **whole)
    gpu = Gpu(0)
    assert (gpu.mig, gpu.clock_mhz(), gpu.joules()) == (True, 1500.0, None)
    assert "MIG" in gpu.untold["energy"]


def test_others_are_named_without_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [SimpleNamespace(pid=number) for number in (os.getpid(), 1)]
    Nvml(monkeypatch, nvmlDeviceGetComputeRunningProcesses=lambda handle: running)
    assert Gpu(0).others() == ["train (1)"]


def test_in_a_container_this_process_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """There NVML gives it the number that it has on the host."""
    running = [SimpleNamespace(pid=number) for number in (2**22 + 1, 2**22 + 2)]
    Nvml(monkeypatch, nvmlDeviceGetComputeRunningProcesses=lambda handle: running)
    monkeypatch.setattr(psutil, "pid_exists", lambda number: False)
    monkeypatch.setattr(Gpu, "_has_context", lambda self: True)  # without a GPU there is none
    assert Gpu(0).others() == [f"train ({2**22 + 2})"]
