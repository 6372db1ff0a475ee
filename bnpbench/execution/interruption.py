"""What ends a process: Ctrl-C and SIGTERM, held back where something must be finished; the end of its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import connection, parent_process
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

_first: int | None = None  # of the signals that have arrived


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived. Not a KeyboardInterrupt, which the command-line library would swallow."""

    def __init__(self, number: int) -> None:
        self.code = CODES[signal.Signals(number)]


def listen() -> None:
    """From now on a signal raises ``Stopped``; those that are ignored, as in a shell's background jobs, stay so."""
    global _first
    _first = None
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def check() -> None:
    """Raises ``Stopped`` if a signal has arrived.

    Python prints and drops what a handler raises inside a callback of the garbage collector, a finalizer or a weak
    reference: whoever works for long asks here now and then.
    """
    if _first is not None:
        raise Stopped(_first)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    global _first
    _first = number if _first is None else _first
    raise Stopped(number)


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

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, remember) for number in SIGNALS}
    try:
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for number in arrived:
            signal.raise_signal(number)


def watch_parent() -> None:
    """End with the parent, however it ended: nobody would read the rows."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
