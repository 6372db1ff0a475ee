"""The average of all mini-batch statistics, against torch's own and against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.layers import AveragedBatchNorm

SHAPES = [(6, 5), (6, 5, 4), (6, 5, 3, 2)]
TORCH = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch_without_momentum(shape: tuple[int, ...]) -> None:
    ours = AveragedBatchNorm(5, eps=1e-3).double()
    theirs = TORCH[len(shape)](5, eps=1e-3, momentum=None).double()
    for step in range(4):
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(step)) * 3 + step
        torch.testing.assert_close(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_running_values_are_the_averages_of_the_batches() -> None:
    layer = AveragedBatchNorm(5).double()
    batches = torch.randn(3, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for batch in batches:
        layer(batch)
    torch.testing.assert_close(layer.running_mean, batches.mean(1).mean(0))
    torch.testing.assert_close(layer.running_var, batches.var(1, correction=1).mean(0))


def test_gradient_passes_through_the_batch_statistics() -> None:
    layer = AveragedBatchNorm(3).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(layer, (x,))
