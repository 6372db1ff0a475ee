"""The clock on CPU, with a time that the test makes."""

from __future__ import annotations

import pytest
import torch

from bnpbench.measure.clock import CpuClock, Reading, clock_for


def test_seconds_and_laps_are_differences_of_the_times_seen() -> None:
    times = iter([10.0, 10.5, 11.5, 13.0, 13.25])
    clock = CpuClock(3, now=lambda: next(times))
    clock.start()
    for _ in range(3):
        clock.lap()
    reading = clock.stop()
    assert reading.seconds == 3.25
    assert reading.laps == (0.5, 1.0, 1.5)


def test_work_that_blocks_is_counted() -> None:
    matrix = torch.randn(400, 400)
    clock = clock_for(torch.device("cpu"), 20)
    clock.start()
    for _ in range(20):
        matrix = matrix @ matrix / 400
        clock.lap()
    reading = clock.stop()
    assert reading.seconds > 0
    assert sum(reading.laps) == pytest.approx(reading.seconds, rel=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_that_is_only_queued_is_counted_on_cuda() -> None:
    clock = clock_for(torch.device("cuda"), 1)
    clock.start()
    torch.cuda._sleep(1_000_000_000)
    clock.lap()
    assert clock.stop().seconds > 0.1


def test_a_pause_is_in_no_number() -> None:
    times = iter([10.0, 11.0, 11.5, 14.5, 16.0, 17.0])
    clock = CpuClock(2, now=lambda: next(times))
    clock.start()
    clock.lap()
    clock.pause()
    clock.resume()
    clock.lap()
    assert clock.stop() == Reading(4.0, (1.0, 2.0))


def test_the_look_at_the_machine_is_not_timed() -> None:
    time = 0.0

    def wait() -> None:
        nonlocal time
        time += 5.0

    clock = CpuClock(1, now=lambda: time)
    clock.start()
    time += 1.0
    clock.lap()
    assert clock.stop(look=wait) == Reading(1.0, (1.0,))
    assert time == 6.0
