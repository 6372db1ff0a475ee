"""What MAC and Eva-f share: see also test_mac.py, test_eva_f.py and tests/bnp/test_rewriter.py."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.mac import Mac


def test_the_vector_that_is_used_is_that_of_the_last_refresh() -> None:
    layer = nn.Linear(2, 1).double()
    rewriter = Rewriter(layer, Mac.made(every=2, rho=0.5))
    used = []
    for value in (1.0, 3.0, 5.0):
        layer.zero_grad()
        layer(torch.full((4, 2), value, dtype=torch.float64)).sum().backward()
        rewriter.precondition()
        used.append(rewriter.state_dict()["vector"][0, 1].item())
    assert used[:2] == [1.0, 1.0]
    assert abs(used[2] - (1 + 2 * 3 + 4 * 5) / 7) < 1e-12
