"""Messages from a process that may be killed or stopped in the middle of one: its reader never waits for the rest."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

_LENGTH = 8  # bytes in front of each message, which say how long it is
_CHUNK = 2**20


class Outbox:
    """Writes messages into a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def send(self, message: Any) -> None:
        """Write a message; waits while the pipe is full."""
        pickled = pickle.dumps(message)
        rest = memoryview(len(pickled).to_bytes(_LENGTH, "big") + pickled)
        while rest:
            rest = rest[os.write(self.pipe.fileno(), rest) :]


class Inbox:
    """Reads messages from a pipe.

    Attributes:
        ended: whether nothing more can come: the pipe's other end is closed, and all is read.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.ended = pipe, False
        self._read = bytearray()
        os.set_blocking(pipe.fileno(), False)

    def fileno(self) -> int:
        return self.pipe.fileno()

    def close(self) -> None:
        self.pipe.close()

    def messages(self) -> Iterator[Any]:
        """Those that have arrived whole and were not read yet; does not wait."""
        while True:
            while (pickled := self._next()) is not None:
                yield pickle.loads(pickled)
            try:
                some = os.read(self.pipe.fileno(), _CHUNK)
            except BlockingIOError:
                return
            if not some:
                self.ended = True
                return
            self._read += some

    def _next(self) -> bytes | None:
        """The first of the messages, taken out of what was read."""
        end = _LENGTH + int.from_bytes(self._read[:_LENGTH], "big")
        if len(self._read) < max(end, _LENGTH):
            return None
        pickled = bytes(self._read[_LENGTH:end])
        del self._read[:end]
        return pickled
