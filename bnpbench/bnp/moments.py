"""The rows of a layer as BNP keeps them: the mean and the variance of each call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import at_least_float32, pool_statistics
from bnpbench.bnp.layer import Counts, Layer, autocasts
from bnpbench.bnp.pool import Call, Pool, Pools, add_unless_recomputed
from bnpbench.bnp.running import Running


class MomentsCall(Call):
    """One call of a layer: statistics of its rows, or the rows themselves, which are looked at when they are asked for.

    Args:
        pool: of the layer.
        counts: of the call.
        inputs: the rows, (N, n); or
        mean, variance: of them, (n,); the variance is None where there is a single row.
    """

    __slots__ = ("_mean", "_variance", "inputs")

    def __init__(
        self,
        pool: Pool,
        counts: Counts,
        inputs: Tensor | None = None,
        mean: Tensor | None = None,
        variance: Tensor | None = None,
    ) -> None:
        super().__init__(pool, counts)
        self.inputs, self._mean, self._variance = inputs, mean, variance

    @property
    def mean(self) -> Tensor:
        """Of the rows, (n,)."""
        self._look()
        assert self._mean is not None
        return self._mean

    @property
    def variance(self) -> Tensor | None:
        """Of the rows, (n,); None where there is a single one."""
        self._look()
        return self._variance

    @property
    def known(self) -> bool:
        """Whether it holds mean and variance."""
        return self._variance is not None

    @property
    def form(self) -> object:
        """What a function is compiled for that takes ``tensors``."""
        if self.inputs is not None:
            return self.inputs.shape, self.inputs.stride(), self.inputs.dtype
        assert self._mean is not None
        return self._mean.dtype, self.known

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it holds: the rows, their mean and variance, or the mean alone."""
        if self.inputs is not None:
            return (self.inputs,)
        assert self._mean is not None
        return (self._mean,) if self._variance is None else (self._mean, self._variance)

    def _look(self) -> None:
        if self.inputs is not None:
            mean, variance = self.pool.layer.statistics(self.inputs)
            self.inputs, self._mean, self._variance = None, mean, None if self.counts.rows == 1 else variance


class MomentsPool(Pool):
    """The means and variances of the calls of one layer.

    Of calls inside compiled modules there are, end to end, sums of the rows minus the running mean (n,), of the squares
    of that (n,), and counts (3,).

    Args:
        layer: whose rows they are.
        pools: of all layers.
        running: the running values.
    """

    calls: dict[MomentsCall, Tensor | None]  # type: ignore[assignment]

    def __init__(self, layer: Layer, pools: Pools[Any], running: Running) -> None:
        super().__init__(layer, pools, 2 * layer.channels + 3)
        self._running = running

    def call_of(self, inputs: Tensor, counts: Counts) -> MomentsCall:
        """The mean and the variance of its rows; in a training step that asks for it the rows of a dense layer."""
        if (
            self.pools.defers
            and not self.layer.spatial_dims
            and inputs.dim() == 2
            and not autocasts(inputs.device.type)
        ):
            return MomentsCall(self, counts, inputs.detach())
        if counts.rows == 1:
            return MomentsCall(self, counts, None, at_least_float32(inputs.detach()).reshape(-1).clone())
        return MomentsCall(self, counts, None, *self.layer.statistics(inputs))

    def observe_compiled(self, inputs: Tensor, output: Tensor) -> None:
        """Add to the sums of calls inside compiled modules."""
        counts = self.layer.counts(inputs, output)
        if counts.rows == 0:
            return
        mean, variance = self.layer.statistics(inputs)
        running_mean = self._running.mean[self.layer.name]
        shift = mean.double() - running_mean.to(mean.device, torch.float64)  # elsewhere, if the model just moved
        sums = [shift * counts.rows, (variance.double() + shift.square()) * counts.rows]
        sums += [shift.new_full((1,), count) for count in counts]
        add_unless_recomputed(self._compiled_sums, torch.cat(sums).to(self._compiled_sums.device))

    def pooled(self) -> MomentsCall:
        """All calls as one; the host must know which are in the pool (not ``on_device`` and none compiled)."""
        if len(self.calls) == 1:
            return next(iter(self.calls))
        calls = list(self.calls)
        rows = [call.counts.rows for call in calls]
        means = torch.stack([call.mean for call in calls])
        variances = torch.stack([torch.zeros_like(c.mean) if c.variance is None else c.variance for c in calls])
        mean, variance = pool_statistics(means, variances, rows)
        counts = Counts(*map(sum, zip(*(call.counts for call in calls), strict=True)))
        return MomentsCall(self, counts, None, mean, variance)

    def add_shifted_sums(self, first: Tensor, second: Tensor, counts: Tensor) -> None:
        """Add the sums of all calls, in float64.

        Args:
            first: takes the sum of the rows minus the running mean, (n,).
            second: takes the sum of the squares of that, (n,).
            counts: takes rows, examples and outputs, (3,).
        """
        running_mean = self._running.mean[self.layer.name]
        for call, kept in self.calls.items():
            shift = call.mean.double() - running_mean.double()
            square = shift.square() if call.variance is None else shift.square() + call.variance
            one = torch.ones_like(counts[0]) if kept is None else kept.to(counts.dtype)
            first.add_(shift * (one * call.counts.rows))
            second.add_(square * (one * call.counts.rows))
            for total, count in zip(counts.unbind(), call.counts, strict=True):
                total.add_(one * count)
        if self.has_compiled:
            n = self.layer.channels
            first.add_(self._compiled_sums[:n])
            second.add_(self._compiled_sums[n : 2 * n])
            counts.add_(self._compiled_sums[2 * n :])
