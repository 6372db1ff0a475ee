"""What the CUDA driver tells where there is none; ``tests/mockgpu`` has what it tells of devices."""

from __future__ import annotations

from pathlib import Path

from bnpbench.measure.driver import driver_count, driver_cuda, driver_device, driver_failure

NONE = ("no-such-library.so",)


def test_without_a_driver_there_are_no_devices(tmp_path: Path) -> None:
    assert driver_count(NONE, tmp_path / "none") == 0
    assert driver_count(NONE, rocm=tmp_path) is None
    assert driver_failure(NONE) is None
    assert driver_cuda(NONE) is None
    assert driver_device(0, NONE) is None
