"""Batch normalization with four improvements (C. Summers and M. Dinneen, ICLR 2020)."""

from __future__ import annotations

from math import ceil, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FourThings(nn.Module):
    """The layer of "Four Things Everyone Should Know to Improve Batch Normalization".

    Three of the four things are here, each by itself: ghost batches, the example's own statistics
    at inference, and groups of channels that share statistics (batch and group normalization in
    one). The fourth, an L2 decay of β and γ − 1, is a term of the loss (``bnpbench.training.models.penalty``).
    With all of them off it is batch normalization; with one group and one example in training it is group
    normalization.

    In training a batch of N is cut into ceil(N / ghost_batch) ghost batches whose sizes differ by at
    most one. The running values take one step a batch: toward the averages of the ghost batches'
    means and unbiased variances. At inference an example is normalized by E[x] and E[x²], each
    ``example_weight`` parts its own and the rest running, E[x²] of the running values being
    running_var + running_mean².

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: share of this step's statistics in the running values.
        ghost_batch: examples a ghost batch, at most; None: the whole batch.
        example_weight: weight of the example's own statistics at inference; 0: running values alone.
        group: channels a group (divides C); None: each channel for itself.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-3,
        momentum: float = 0.01,
        ghost_batch: int | None = 16,
        example_weight: float = 0.1,
        group: int | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.ghost_batch, self.example_weight, self.group = ghost_batch, example_weight, group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features // (group or 1)))
        self.register_buffer("running_var", torch.ones(num_features // (group or 1)))

    def extra_repr(self) -> str:
        """The options, for ``print(model)``."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, ghost_batch={self.ghost_batch}, "
            f"example_weight={self.example_weight}, group={self.group}"
        )

    def smallest_set(self, shape: torch.Size) -> int:
        """Number of values in the smallest set that an input (N, C, ...) of ``shape`` is normalized over."""
        return (shape[0] // self._ghosts(shape[0])) * (self.group or 1) * prod(shape[2:])

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training mode also update the running values."""
        values = x.reshape(x.shape[0], len(self.running_mean), -1)
        return self._train(values, x) if self.training else self._infer(values, x)

    def _train(self, values: Tensor, x: Tensor) -> Tensor:
        ghosts = self._ghosts(len(x))
        size, larger = divmod(len(x), ghosts)  # so many ghost batches have one example more
        parts = [(larger, size + 1), (ghosts - larger, size)]
        cut = [part.shape[0] for part in values.split([count * each for count, each in parts])]
        normalized, sums = [], []
        for part, (count, each) in zip(values.split(cut), parts, strict=True):
            if count:
                y, statistics = self._normalize_ghosts(part, count, each)
                normalized.append(y)
                sums.append(statistics.sum(1))
        with torch.no_grad():
            mean, variance = sum(sums[1:], sums[0]) / ghosts
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
        y = normalized[0] if len(normalized) == 1 else torch.cat(normalized)
        return self._affine(y.view_as(x)) if self.group else y.view_as(x)

    def _normalize_ghosts(self, values: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
        """Normalize ``count`` ghost batches of ``size`` examples (count·size, G, L) at once.

        They become channels of their own, so that torch's batch normalization does it in one call.
        Also returns the means and the unbiased variances (2, count, G). Without groups γ and β are applied.
        """
        groups = values.shape[1]
        rows = values.unflatten(0, (count, size)).transpose(0, 1).reshape(size, count * groups, -1)
        weight, bias = (None, None) if self.group else (self.weight.repeat(count), self.bias.repeat(count))
        mean, variance = values.new_zeros(2, count * groups)
        # with momentum 1 the kernel leaves the batch's own statistics in the buffers it is given
        y = F.batch_norm(rows, mean, variance, weight, bias, True, 1.0, self.eps)
        y = y.unflatten(1, (count, groups)).transpose(0, 1).reshape(values.shape)
        return y, torch.stack([mean, variance]).view(2, count, groups)

    def _infer(self, values: Tensor, x: Tensor) -> Tensor:
        if not self.example_weight and not self.group:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        own, running = self.example_weight, 1 - self.example_weight
        variance, mean = torch.var_mean(values, 2, correction=0, keepdim=True)
        away = mean - self.running_mean[:, None]
        # own E[x²] + running E[x²] − (own E[x] + running E[x])², written without its cancellation
        variance = own * variance + running * self.running_var[:, None] + own * running * away.square()
        y = (values - self.running_mean[:, None] - own * away) * (variance + self.eps).rsqrt()
        return self._affine(y.view_as(x))

    def _affine(self, y: Tensor) -> Tensor:
        shape = (self.num_features, *[1] * (y.ndim - 2))
        return torch.addcmul(self.bias.view(shape), y, self.weight.view(shape))

    def _ghosts(self, examples: int) -> int:
        return 1 if self.ghost_batch is None else ceil(examples / self.ghost_batch)
