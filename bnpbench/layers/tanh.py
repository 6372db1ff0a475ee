"""A squashing in the place of a normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DynamicTanh(nn.Module):
    """``weight tanh(alpha x) + bias``, alpha one number and the others one a channel; it takes no statistics.

    Source: Zhu, Chen, He, LeCun, Liu, "Transformers without Normalization", arXiv 2503.10622, equation 6.

    Args:
        num_features: C.
        alpha: where alpha starts.
    """

    def __init__(self, num_features: int, alpha: float = 0.5) -> None:
        super().__init__()
        self.num_features = num_features
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    def extra_repr(self) -> str:
        """The options, for ``print(model)``."""
        return str(self.num_features)

    def forward(self, x: Tensor) -> Tensor:
        """Squash ``x`` (N, C, ...)."""
        shape = (self.num_features, *[1] * (x.ndim - 2))
        return torch.addcmul(self.bias.view(shape), torch.tanh(self.alpha * x), self.weight.view(shape))
