"""The standard streams: always there, and never a reason to end."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO

from bnpbench.text import fitted


def open_missing() -> None:
    """Open what is closed of the descriptors 0, 1 and 2 on the null device: else the next file takes its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the process


def unfailing(stream: TextIO) -> io.TextIOWrapper:
    """A line-buffered stream to where another goes, which drops what cannot be written.

    For what is said beside the result: its reader may be gone, its disk full.
    """
    raw = _Unfailing(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=True)


def columns(stream: TextIO | None) -> int | None:
    """Columns of the terminal that a stream goes to; None where it goes elsewhere."""
    try:
        if stream is None or stream.closed or not stream.isatty():
            return None
        told = os.environ.get("COLUMNS", "")
        return int(told) if told.isdecimal() and int(told) else os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return None


def tell(text: str) -> None:
    """Say something on stderr; on a terminal no line is wider than it."""
    print(fitted(text, columns(sys.stderr)), file=sys.stderr, flush=True)


class _Unfailing(io.FileIO):
    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        with contextlib.suppress(OSError):
            while rest and (written := super().write(rest)):
                rest = rest[written:]
        return len(data)
