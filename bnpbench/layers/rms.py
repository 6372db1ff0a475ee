"""Normalization by the root mean square of an example."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Divides an example (C, ...) by the root mean square of all its values, and scales each channel.

    torch's ``nn.RMSNorm`` takes the shape behind the channels when it is built, and has a scale for each position.
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Args:
        num_features: C.
        eps: added to the mean square.
    """

    def __init__(self, num_features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.weight = nn.Parameter(torch.ones(num_features))

    def extra_repr(self) -> str:
        """The options, for ``print(model)``."""
        return f"{self.num_features}, eps={self.eps}"

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...)."""
        scale = self.weight.view(-1, *[1] * (x.ndim - 2))
        return F.rms_norm(x, x.shape[1:], eps=self.eps) * scale
