"""The child's side: what it prints has a limit, and so has what it says of its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from bnpbench.errors import Origin, SuiteError
from bnpbench.execution.child import LOG_BYTES, failure, shorten, shortened
from bnpbench.suite import Cell, Settings

CELL = Cell(
    Settings.model_validate(
        {
            "dataset": "digits",
            "network": {"kind": "fc", "hidden": (9,)},
            "method": "bn",
            "optimizer": {"kind": "sgd", "lr": 0.1},
            "batch_size": 50,
            "epochs": 1,
        }
    ),
    origins={"network.name": Origin(Path("/home/somebody/own.toml"), 7, "sweep.network[1].name")},
)


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    printing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(3):
            os.write(printing, b"begin" + b"x" * 2 * LOG_BYTES + b"end")
            shorten(log)
            text = log.read_bytes()
            assert len(text) < LOG_BYTES
            assert text.startswith(b"begin")
            assert text.endswith(b"end")
            assert b"bytes are left out here" in text
        os.write(printing, b"more")
        assert log.read_bytes() == text + b"more"
        shorten(log)
        assert log.read_bytes() == text + b"more"
    finally:
        os.close(printing)


def test_no_log_and_no_link_is_shortened(tmp_path: Path) -> None:
    shorten(tmp_path / "absent")
    (tmp_path / "elsewhere").write_bytes(bytes(2 * LOG_BYTES))
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    shorten(tmp_path / "link")
    assert (tmp_path / "elsewhere").stat().st_size == 2 * LOG_BYTES


def test_a_long_message_keeps_its_end() -> None:
    """As of a process that loads data: a traceback in front of the cause."""
    status, message = failure(
        RuntimeError("Caught in worker 0. " + "  File somewhere\n" * 500 + "No space left on device"), CELL
    )
    assert status == "error"
    assert message.startswith("RuntimeError: Caught in worker 0.")
    assert message.endswith("No space left on device")
    assert len(message) <= 1000
    _, message = failure(torch.OutOfMemoryError("x" * 5000 + " tried to allocate 3 GiB"), CELL)
    assert "tried to allocate 3 GiB (" in message


@pytest.mark.regression
def test_an_error_in_the_suite_is_told_with_its_line_and_no_folder() -> None:
    """It was said that there is no such network, and not where in the suite it is named."""
    told = SuiteError("there is none", key="network.name", closest="two")
    assert failure(told, CELL) == (
        "error",
        "SuiteError: own.toml:7: sweep.network[1].name: there is none (did you mean 'two'?)",
    )
    assert (
        failure(SuiteError("there is none", key="method.layers"), CELL)[1] == "SuiteError: method.layers: there is none"
    )


def test_shortened() -> None:
    assert shortened("short", 10) == "short"
    text = "".join(chr(ord("a") + place % 26) for place in range(1000))
    cut = shortened(text, 100)
    assert len(cut) == 100
    head, end = cut.split(" ... ")
    assert text.startswith(head)
    assert text.endswith(end)
    assert len(end) > len(head)
