"""Errors: where they are, what they say, and what of the machine's is no bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import cli
from bnpbench.errors import refused


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -v"),
        (OSError(28, "No space left on device", "/there/x"), "/there/x: No space left on device"),
        (OSError("AF_UNIX path too long"), "AF_UNIX path too long"),
        (ImportError("failed to map segment", name="libx"), "failed to map segment"),
        (ImportError("no such name", name="bnpbench.nothing"), None),
        (RuntimeError("something else"), None),
        (KeyError("x"), None),
    ],
)
def test_what_the_machine_refuses_is_no_bug(error: Exception, word: str | None) -> None:
    refusal = refused(error)
    assert (refusal is None) == (word is None)
    if refusal is not None and word is not None:
        assert word in str(refusal)
        assert refusal.exit_code == 2
