"""The layer of dynamic tanh."""

from __future__ import annotations

import torch

from bnpbench.layers import DynamicTanh


def test_alpha_is_one_number_that_is_trained() -> None:
    layer = DynamicTanh(3, alpha=0.5)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "alpha": (1,),
        "weight": (3,),
        "bias": (3,),
    }
    x = torch.tensor([[0.1, -0.2, 3.0]])
    layer(x).sum().backward()
    slope = (x * (1 - torch.tanh(0.5 * x).square())).sum()
    assert layer.alpha.grad is not None
    torch.testing.assert_close(layer.alpha.grad[0], slope)


def test_it_says_what_it_is() -> None:
    assert str(DynamicTanh(3)) == "DynamicTanh(3)"
