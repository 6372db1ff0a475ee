"""Weights of mean 0 and variance 1, or of the variance that keeps that of a signal."""

from __future__ import annotations

import math

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


class ScaledStandardized(Standardized):
    """The same times ``gain * gamma / sqrt(N)``, N the fan in, the gain one trained number an output channel, from 1.

    Source: Brock, De and Smith, "Characterizing Signal Propagation to Close the Performance Gap in Unnormalized
    ResNets", arXiv 2101.08692, Scaled Weight Standardization.

    Args:
        weight: the kernel, whose shape, type and device it takes.
        gamma: that of the activation which the signal came through.
        eps: added to the variance.
    """

    def __init__(self, weight: Tensor, gamma: float, eps: float = 1e-6) -> None:
        super().__init__(eps)
        self.scale = gamma / math.sqrt(weight[0].numel())
        self.gain = nn.Parameter(weight.new_ones(len(weight), *[1] * (weight.ndim - 1)))

    def forward(self, weight: Tensor) -> Tensor:
        """The standardized kernel."""
        return super().forward(weight) * (self.gain * self.scale)
