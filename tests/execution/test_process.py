"""The process that measures."""

from __future__ import annotations

import torch
from bnpbench.execution.process import failure, shortened


def test_a_long_message_keeps_its_end() -> None:
    """As of a process that loads data: a traceback in front of the cause."""
    status, message = failure(
        RuntimeError("Caught in worker 0. " + "  File somewhere\n" * 500 + "No space left on device")
    )
    assert status == "error"
    assert message.startswith("RuntimeError: Caught in worker 0.")
    assert message.endswith("No space left on device")
    assert len(message) <= 1000
    _, message = failure(torch.OutOfMemoryError("x" * 5000 + " tried to allocate 3 GiB"))
    assert "tried to allocate 3 GiB (" in message


def test_shortened() -> None:
    assert shortened("short", 10) == "short"
    text = "".join(chr(ord("a") + place % 26) for place in range(1000))
    cut = shortened(text, 100)
    assert len(cut) == 100
    head, end = cut.split(" ... ")
    assert text.startswith(head)
    assert text.endswith(end)
    assert len(end) > len(head)
