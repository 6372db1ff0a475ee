"""Whether a GPU slowed itself down was asked once all was over and it stood idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench.execution import block
from bnpbench.execution.messages import Finished, RunBlock
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite.cells import Block
from bnpbench.suite.document import Measure
from tests.training.test_trainer import cell


@pytest.mark.parametrize(
    ("told", "recorded"),
    [([False, True, False], True), ([False, False, False], False), ([None, None, None], None)],
)
def test_one_epoch_is_enough(monkeypatch: pytest.MonkeyPatch, told: list[bool | None], recorded: bool | None) -> None:
    answers = iter(told)
    monkeypatch.setattr(block.machine, "throttled", lambda device: next(answers))
    monkeypatch.setattr(block, "configure", lambda *arguments: None)  # of the process of a cell, not of the tests'
    one = cell(epochs=3)
    sent: list[Any] = []
    request = RunBlock(
        block=Block((one,), Measure()),
        cells=(one,),
        costs={one.key: Costs(Columns())},
        data_dir=None,
        checkpoints=None,
        fresh=True,
        cores=None,
        gpu=0,
        log=str(Path("log")),
    )
    block.run_block(request, sent.append)
    (finished,) = (message for message in sent if isinstance(message, Finished))
    assert finished.row["throttled"] is recorded
