"""A first epoch that takes more than a minute: the line that a minute brings has nothing to tell of it yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.progress import LINE_EVERY, Lines
from tests.command import suite


def test_a_minute_without_an_epoch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_suite(suite(tmp_path))
    times = iter([0.0, *[2 * LINE_EVERY] * 3])
    progress = Lines(now=lambda: next(times))
    progress.start(loaded.blocks(loaded.cells(device="cpu", threads=1)))
    assert capsys.readouterr().err == "no epoch yet (0/4 cells)\n"
