"""``[select]`` chooses from any axis, also one whose values are tables."""

from __future__ import annotations

from pathlib import Path

from bnpbench import load_suite
from tests.support.command import SUITE, bnpbench, suite

OPTIMIZERS = SUITE.replace('optimizer = { kind = "sgd", lr = 0.1 }\n', "validation = 0.1\n") + (
    'optimizer = [{ kind = "sgd", lr = 0.1 }, { kind = "adam" }]\n[select]\nover = "optimizer"\n'
)


def test_tables_are_chosen_from(tmp_path: Path) -> None:
    path = suite(tmp_path, OPTIMIZERS)
    loaded = load_suite(path)
    trials = loaded.cells(device="cpu", threads=1)
    finals = loaded.finals(
        {cell.key: float(cell.settings.optimizer.kind == "adam") for cell in trials}, device="cpu", threads=1
    )
    assert [cell.settings.optimizer.kind for cell in finals] == ["adam"] * 4
    done = bnpbench("check", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the best optimizer of each" in done.stdout
