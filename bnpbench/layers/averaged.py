"""Batch normalization that infers with the plain average of all its mini-batch statistics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AveragedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalization over (N, C) or (N, C, ...) with cumulative averages as running statistics.

    The average of the mini-batch means, and of the unbiased mini-batch variances, over every
    training step so far. The same as ``torch.nn.BatchNorm1d(..., momentum=None)``, which reads its
    step counter back to the host in every step; this one divides on the device.

    Args:
        num_features: C.
        eps: added to the variance.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training mode also update the averages."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        # with momentum 1 the kernel leaves this batch's own statistics in the buffers it is given
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        y = F.batch_norm(x, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            share = self.num_batches_tracked.to(mean.dtype).reciprocal()
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance, share)
        return y
