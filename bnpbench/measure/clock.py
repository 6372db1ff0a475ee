"""Time on the device: a clock that waits for the work it measures.

On CPU an operator has finished when its call returns. On CUDA it has only been queued, so the clock
places events in the stream and waits for the last one before it reads any of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

import torch

MOST_LAPS = 4096  # a median needs no more; CUDA events cost about a microsecond each


@dataclass(frozen=True)
class Reading:
    """What a clock saw.

    Attributes:
        seconds: from start to stop, device work included.
        laps: seconds per step, one entry a lap.
    """

    seconds: float
    laps: tuple[float, ...]


@dataclass
class CpuClock:
    """Wall clock around work that is done when its call returns.

    Args:
        steps: how many laps are to come.
    """

    steps: int
    now: staticmethod[[], float] = field(default=staticmethod(time.perf_counter), repr=False)

    def start(self) -> None:
        self._marks = [self.now()]
        self.lap = self._lap

    def _lap(self) -> None:
        self._marks.append(self.now())

    def stop(self) -> Reading:
        end, marks = self.now(), self._marks
        return Reading(end - marks[0], tuple(b - a for a, b in pairwise(marks)))


class CudaClock:
    """CUDA events in the current stream; at most ``MOST_LAPS`` of them, spread evenly over the steps."""

    def __init__(self, steps: int) -> None:
        self.every = -(-max(steps, 1) // MOST_LAPS)

    def start(self) -> None:
        torch.cuda.synchronize()
        self._begin, self._count, self._events = time.perf_counter(), 0, [self._event()]

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self) -> None:
        self._count += 1
        if self._count % self.every == 0:
            self._events.append(self._event())

    def stop(self) -> Reading:
        torch.cuda.synchronize()
        seconds = time.perf_counter() - self._begin
        laps = tuple(a.elapsed_time(b) / 1e3 / self.every for a, b in pairwise(self._events))
        return Reading(seconds, laps)


Clock = CpuClock | CudaClock


def clock_for(device: torch.device, steps: int) -> Clock:
    """The clock that waits for the work of ``device``."""
    return CudaClock(steps) if device.type == "cuda" else CpuClock(steps)
