"""Batch renormalization (S. Ioffe, Batch Renormalization, NeurIPS 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BatchRenorm(nn.modules.batchnorm._BatchNorm):
    """Batch renormalization over (N, C) or (N, C, ...): γ((x − μ_B)/σ_B · r + d) + β.

    r = σ_B/σ and d = (μ_B − μ)/σ, with σ² = variance + eps, from the running values before this
    step's update; no gradient passes through them. ``clipped`` limits r to [1/r_max, r_max] and d
    to [−d_max, d_max], where r_max goes from 1 to 3 over the layer's training steps 5,000 to 40,000
    and d_max from 0 to 5 over 5,000 to 25,000 (Ioffe, section 4); before that it is batch normalization.

    The running values are those of batch normalization (mean and unbiased variance, from 0 and 1),
    so that r = 1, d = 0 is batch normalization in inference too; Ioffe averages σ instead of σ².
    Runs over a single row, whose variance is 0 and whose input gets no gradient. The step counter and
    the limits are tensors: nothing is read back to the host.

    Args:
        num_features: C.
        eps: added to the variances.
        momentum: share of this step's statistics in the running values.
        clipped: follow the schedule of r_max and d_max; else r and d are free.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-3, momentum: float = 0.01, clipped: bool = True) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        self.clipped = clipped
        self._share = momentum

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training mode also update the running values."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        r, d = self._corrections(x.detach())
        # γ(x̂r + d) + β is one batch normalization with scale γr and shift γd + β. Not F.batch_norm,
        # which refuses a single row.
        scale, shift = self.weight * r, torch.addcmul(self.bias, self.weight, d)
        return torch.batch_norm(x, scale, shift, None, None, True, 0.0, self.eps, torch.backends.cudnn.enabled)

    def limits(self) -> tuple[Tensor, Tensor]:
        """r_max and d_max of the next training step, on the layer's device."""
        steps = self.num_batches_tracked.to(self.running_mean.dtype)
        r_max = 1 + 2 * ((steps - 5_000) / 35_000).clamp(0, 1)
        d_max = 5 * ((steps - 5_000) / 20_000).clamp(0, 1)
        return r_max, d_max

    @torch.no_grad()
    def _corrections(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """r and d of this step, and the update of the running values."""
        rows = x.numel() // x.shape[1]
        variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
        sigma = (self.running_var + self.eps).sqrt()
        r, d = (variance + self.eps).sqrt() / sigma, (mean - self.running_mean) / sigma
        if self.clipped:
            r_max, d_max = self.limits()
            r, d = r.clamp(1 / r_max, r_max), d.clamp(-d_max, d_max)
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self._share)
        self.running_var.lerp_(variance * (rows / max(rows - 1, 1)), self._share)
        return r, d
