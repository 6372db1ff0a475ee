"""Ctrl-C and SIGTERM, held back while something must be finished."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold the signals back until the block is left, then let them act.

    The handlers are exchanged rather than the signals blocked: a blocked signal goes to another thread, and Python
    then runs its handler in this one all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: Any) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, remember) for number in SIGNALS}
    try:
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for number in arrived:
            signal.raise_signal(number)
