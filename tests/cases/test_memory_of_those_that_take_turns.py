"""The peak of an interleaved block on CUDA was one number for all of its cells."""

from __future__ import annotations

import pytest
import torch

from bnpbench.measure.machine import DeviceMemory


class Allocator:
    """Counts bytes as torch's CUDA allocator does."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0

    def take(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def reset(self) -> None:
        self.peak = self.allocated


def test_each_has_its_own_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocator.allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocator.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: allocator.reset())
    allocator.take(1000)  # data that both read
    small, large = (DeviceMemory(torch.device("cuda")) for _ in range(2))
    for member, size in ((small, 10), (large, 50)):
        with member.turn():
            allocator.take(size)  # the weights stay
    for _ in range(2):
        for member, size in ((large, 500), (small, 100)):
            with member.turn():
                allocator.take(size)  # a step's own
                allocator.take(-size)
    assert (small.held, small.peak) == (10, 110)
    assert (large.held, large.peak) == (50, 550)
