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
    """

    seconds: float
    laps: tuple[float, ...]


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

    def stop(self) -> Reading:
        seconds = self.now() - self._paused - self._marks[0]
        return Reading(seconds, tuple(end - begin for begin, end in pairwise(self._marks)))


class CudaClock:
    """CUDA events in the current stream; at most ``MOST_LAPS`` of them, spread evenly over the steps."""

    def __init__(self, steps: int) -> None:
        self.every = -(-max(steps, 1) // MOST_LAPS)

    def start(self) -> None:
        torch.cuda.synchronize()
        self._paused, self._count = 0.0, 0
        self._begin = time.perf_counter()
        self._stretches = [[self._event()]]  # no lap goes across a pause

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self) -> None:
        self._count += 1
        if self._count % self.every == 0:
            self._stretches[-1].append(self._event())

    def pause(self) -> None:
        torch.cuda.synchronize()
        self._paused -= time.perf_counter()

    def resume(self) -> None:
        torch.cuda.synchronize()
        self._paused += time.perf_counter()
        self._count = 0
        self._stretches.append([self._event()])

    def stop(self) -> Reading:
        torch.cuda.synchronize()
        seconds = time.perf_counter() - self._begin - self._paused
        pairs = chain.from_iterable(pairwise(stretch) for stretch in self._stretches)
        return Reading(seconds, tuple(a.elapsed_time(b) / 1e3 / self.every for a, b in pairs))


Clock = CpuClock | CudaClock


def clock_for(device: torch.device, steps: int) -> Clock:
    """The clock that waits for the work of ``device``."""
    return CudaClock(steps) if device.type == "cuda" else CpuClock(steps)
