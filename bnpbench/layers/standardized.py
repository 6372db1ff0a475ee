"""Weights of mean 0 and variance 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Standardized(nn.Module):
    """A parametrization of a kernel (c', c, k, ...): each output channel's weights have mean 0 and variance 1.

    Source: Qiao, Wang, Liu, Shen, Yuille, "Micro-Batch Training with Batch-Channel Normalization and Weight
    Standardization", arXiv 1903.10520, equations 9 to 11.

    Args:
        eps: added to the variance.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, weight: Tensor) -> Tensor:
        """The standardized kernel."""
        variance, mean = torch.var_mean(weight, list(range(1, weight.ndim)), correction=0, keepdim=True)
        return (weight - mean) * (variance + self.eps).rsqrt()
