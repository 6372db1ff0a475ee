"""A batch without examples has no statistics: a compiled model raised an IndexError where an eager one went on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.bnp import BNP


@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_batch_changes_nothing(compiled: bool) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(12, 2))
    bnp = BNP(model)
    before = bnp.state_dict()
    forward = torch.compile(model, backend="eager", fullgraph=True, dynamic=False) if compiled else model
    forward(torch.ones(0, 2, 5)).sum().backward()
    bnp.precondition()
    assert all(torch.equal(value, before[name]) for name, value in bnp.state_dict().items())
    forward(torch.ones(3, 2, 5)).sum().backward()  # and the next batch counts as ever
    bnp.precondition()
    assert not torch.equal(bnp.state_dict()["0.running_mean"], before["0.running_mean"])
    torch._dynamo.reset()
