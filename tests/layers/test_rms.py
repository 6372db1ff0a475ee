"""The layer of RMS normalization."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.layers import RmsNorm


def test_on_rows_it_is_torchs() -> None:
    x = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ours, torchs = RmsNorm(7, eps=1e-3).double(), nn.RMSNorm(7, eps=1e-3).double()
    torch.testing.assert_close(ours(x), torchs(x))
    gradients = [torch.autograd.grad(norm(x).square().sum(), [x, norm.weight]) for norm in (ours, torchs)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_it_says_what_it_is() -> None:
    assert str(RmsNorm(7, eps=1e-3)) == "RmsNorm(7, eps=0.001)"
