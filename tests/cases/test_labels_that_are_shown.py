"""A label may hold anything; a terminal obeyed what `check` and the lines of `run` wrote of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.listing import listing
from bnpbench.execution.progress import Lines
from tests.command import SUITE, suite

CLEARS = SUITE.replace('"vanilla", "bnp"', r'{ kind = "vanilla", label = "a\u001b[2J\u0007b" }')


def test_nothing_shown_is_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_suite(suite(tmp_path, CLEARS))
    (block, *_) = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    progress.start([block])
    progress.note("ended by \x1b[2J")
    progress.finished(block, {cell.key: {"status": "ok", "seed": 1} for cell in block.cells})
    for text in (listing(loaded, tmp_path / "none"), capsys.readouterr().err):
        assert "[2J" in text
        assert text.replace("\n", "").isprintable()
