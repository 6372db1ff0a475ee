"""Batch normalization over the batch of all devices, on CPU and CUDA."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp.algorithms import batch_statistics


class SynchronizedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalization over (N, C) or (N, C, ...), N being the examples of all ranks of the default group.

    What one device would do with the whole batch, also where the ranks hold different numbers of examples, or one
    each. A forward pass makes one all-reduce of 2C + 1 float64 numbers: the number of rows, and their sums and sums of
    squares, centred on the running mean so that nothing cancels. A backward pass makes one of 2C numbers.
    torch's SyncBatchNorm gathers means and deviations instead, and refuses the CPU.

    The gradients of weight and bias are those of this rank's share, to be added up or averaged like all others.
    Without a group the layer is plain batch normalization.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: share of this step's statistics in the running values; None: their plain average over all steps.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training mode also update the running values."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        rows, mean, variance = self._statistics(x.detach())
        self._update_running(rows, mean, variance)
        y: Tensor = _Normalize.apply(x, self.weight, self.bias, mean, variance, rows, self.eps)
        return y

    @torch.no_grad()
    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of all ranks (1,), their mean and their population variance (C,)."""
        mean, variance = batch_statistics(x, channel_dim=1)
        rows = x.numel() // x.shape[1]
        shift = mean.double() - self.running_mean
        sums = torch.cat([shift.new_full((1,), rows), shift * rows, (variance + shift.square()) * rows])
        _add_up(sums)
        total, first, second = sums.split([1, *[self.num_features] * 2])
        shift = first / total
        variance = (second / total - shift.square()).clamp(min=0)  # lets NaN through
        return total.to(mean.dtype), (self.running_mean + shift).to(mean.dtype), variance.to(mean.dtype)

    @torch.no_grad()
    def _update_running(self, rows: Tensor, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share: Any = self.momentum
        if share is None:
            share = self.num_batches_tracked.to(mean.dtype).reciprocal()
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * (rows / (rows - 1)), share)


class _Normalize(torch.autograd.Function):
    """γ(x − μ)/σ + β with statistics of all ranks, through which the gradient passes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, rows: Tensor, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance, rows)
        ctx.eps = eps
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """dx = (γ/σ)(dy − Σdy/N − x̂ Σ(dy x̂)/N), the sums over all ranks."""
        x, weight, mean, variance, rows = ctx.saved_tensors
        dx, weight_grad, bias_grad = torch.ops.aten.native_batch_norm_backward(  # through fixed statistics
            grads[0], x, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        sums = torch.cat([bias_grad, weight_grad])
        _add_up(sums)
        mean_of_grad, slope = (sums / rows).chunk(2)
        inverse = (variance + ctx.eps).rsqrt()
        shape = (1, -1, *[1] * (x.ndim - 2))
        dx -= (weight * inverse * mean_of_grad).view(shape)
        dx.addcmul_(x - mean.view(shape), (weight * inverse.square() * slope).view(shape), value=-1)
        return dx, weight_grad, bias_grad, None, None, None, None


def _add_up(tensor: Tensor) -> None:
    """Sum over the ranks of the default group, in place."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(tensor)
