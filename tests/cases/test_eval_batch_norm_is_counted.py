"""Batch normalization by fixed statistics, which is also the forward pass of the synchronized one, counted nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.layers import SynchronizedBatchNorm
from bnpbench.measure.flops import FlopCount


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_in_eval_mode_it_is_a_multiply_add_an_element(device: str) -> None:
    layer = nn.BatchNorm1d(5, device=device).eval()
    with torch.no_grad(), FlopCount() as flops:
        layer(torch.ones(7, 5, device=device))
    assert (flops.total, flops.uncounted) == (2 * 7 * 5, {})


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_synchronized_one_has_a_formula_for_everything(device: str) -> None:
    layer, x = SynchronizedBatchNorm(5).to(device), torch.ones(7, 5, device=device, requires_grad=True)
    with FlopCount() as flops:
        y = layer(x)
    assert flops.uncounted == {}
    assert flops.by_operator["aten._native_batch_norm_legit_no_training"] == 2 * 7 * 5
    with FlopCount() as flops:
        y.backward(torch.ones(7, 5, device=device))
    assert flops.uncounted == {}
