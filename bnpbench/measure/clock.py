"""Time on the device: a clock that waits for the work it measures.

On CPU an operator has finished when its call returns. On CUDA it has only been queued, so the clock
places events in the stream and waits for the last one before it reads any of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise

import torch

MOST_LAPS = 4096  # a median needs no more; CUDA events cost about a microsecond each


@dataclass(frozen=True)
class Reading:
    """What a clock saw.

    Attributes:
        seconds: from start to stop, device work included.
        laps: seconds per step, one entry a lap.
        peak_bytes: the most that was allocated on a CUDA device meanwhile; None on others.
    """

    seconds: float
    laps: tuple[float, ...]
    peak_bytes: int | None = None


Look = Callable[[], object]


def _nothing() -> None:
    """The look of whoever wants none."""


class CpuClock:
    """Wall clock around work that is done when its call returns.

    Args:
        steps: how many laps are to come.
        now: gives the time in seconds.
    """

    def __init__(self, steps: int, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now

    def start(self) -> None:
        self._paused = 0.0
        self._marks = [self.now()]

    def lap(self) -> None:
        """A step has ended."""
        self._marks.append(self.now() - self._paused)

    def pause(self) -> None:
        """What follows is no part of the training."""
        self._paused -= self.now()

    def resume(self) -> None:
        """The training goes on."""
        self._paused += self.now()

    def stop(self, look: Look = _nothing) -> Reading:
        """The end of the last step; ``look`` is at the machine, just behind it."""
        seconds = self.now() - self._paused - self._marks[0]
        look()
        return Reading(seconds, tuple(end - begin for begin, end in pairwise(self._marks)))


class CudaClock:
    """CUDA events in the current stream; at most ``MOST_LAPS`` of them, spread evenly over the steps."""

    def __init__(self, steps: int) -> None:
        self.every = -(-max(steps, 1) // MOST_LAPS)

    def start(self) -> None:
        self._stretches: list[list[torch.cuda.Event]] = []  # no lap goes across a pause
        self._ends: list[torch.cuda.Event] = []
        self._peak = 0
        self._begin()

    def _begin(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._count = 0
        self._stretches.append([self._event()])

    def _end(self, look: Look) -> None:
        self._ends.append(self._event())
        look()
        torch.cuda.synchronize()
        self._peak = max(self._peak, torch.cuda.max_memory_allocated())

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self) -> None:
        self._count += 1
        if self._count % self.every == 0:
            self._stretches[-1].append(self._event())

    def pause(self) -> None:
        self._end(_nothing)

    def resume(self) -> None:
        self._begin()

    def stop(self, look: Look = _nothing) -> Reading:
        """The end of the last step; ``look`` is at the machine while it still works on what was queued."""
        self._end(look)
        whole = zip(self._stretches, self._ends, strict=True)
        seconds = sum(stretch[0].elapsed_time(end) for stretch, end in whole) / 1e3
        pairs = chain.from_iterable(pairwise(stretch) for stretch in self._stretches)
        laps = tuple(a.elapsed_time(b) / 1e3 / self.every for a, b in pairs)
        return Reading(seconds, laps, self._peak)


Clock = CpuClock | CudaClock


def clock_for(device: torch.device, steps: int) -> Clock:
    """The clock that waits for the work of ``device``."""
    return CudaClock(steps) if device.type == "cuda" else CpuClock(steps)
