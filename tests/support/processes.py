"""A process that a test has started, and those below it. Each may end at any moment, even while it is asked."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def below(pid: int, generation: int) -> list[psutil.Process]:
    """Those so many generations below a process, in the order of their start: 1 for its children."""
    found = answer(lambda: [psutil.Process(pid)], [])
    for _ in range(generation):
        found = [child for parent in found for child in answer(parent.children, [])]
    return sorted(found, key=lambda process: answer(process.create_time, 0.0))


def answer(question: Callable[[], T], of_ended: T) -> T:
    """What a process answers, or what stands for the answer of one that has ended."""
    try:
        return question()
    except psutil.NoSuchProcess:
        return of_ended


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 200) -> None:
    """Wait until something holds that a process at work brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
