"""A sweep of widths: every line said `vanilla N=10`, whichever network it was about."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.progress import Lines
from tests.command import SUITE, suite

WIDTHS = SUITE.replace('method = ["vanilla", "bnp"]', 'method = ["vanilla"]\nnetwork.hidden = [[4], [4, 5]]')


def test_a_line_has_what_tells_its_cell_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_suite(suite(tmp_path, WIDTHS))
    blocks = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Lines()
    progress.start(blocks)
    for block in blocks:
        progress.finished(block, {cell.key: {"status": "ok", "seed": cell.settings.seed} for cell in block.cells})
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"vanilla N=10 network.hidden={hidden} seed={seed}" for hidden in ("[4]", "[4, 5]") for seed in (1, 2)
    ]
