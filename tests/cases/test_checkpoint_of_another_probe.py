"""A cell that was stopped went on from its checkpoint after ``[probe]`` had been changed: the rows of its first epochs
belonged to another block, and numbers of one neuron stood beside those of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution import block
from bnpbench.execution.messages import Epoch, Preflight, RunBlock
from bnpbench.execution.preflight import preflight
from tests.command import SUITE, suite

ALONE = SUITE.replace('method = ["vanilla", "bnp"]\nseed = [1, 2]\n', 'method = ["vanilla"]\n')
PROBE = '[probe]\nlayer = "hidden2"\nevery = 5\nneuron = {}\n'


def test_a_checkpoint_goes_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "CHECKPOINT_SECONDS", 0.0)
    rows = []
    for neuron in (0, 0, 1):
        loaded = load_suite(suite(tmp_path, ALONE + PROBE.format(neuron)))
        (one,) = loaded.blocks(loaded.cells(device="cpu", threads=1))
        costs = preflight(Preflight(one.cells, None, offline=True))
        said: list[Epoch] = []
        request = RunBlock(one, one.cells, costs, None, tmp_path / "checkpoints", False, None, 0, "log")
        block.run_block(request, lambda message, said=said: said.append(message))
        rows.append([message.row["block"] for message in said if isinstance(message, Epoch)])
        assert set(rows[-1]) == {one.id}
    assert [len(of) for of in rows] == [2, 2, 2]
