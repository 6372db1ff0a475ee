"""Running values of all layers on one device, end to end in one tensor, and the step that uses them.

Whatever needs a whole vector per layer - statistics, running values, damping - is done for all layers at once; only
steps 4 and 5, which go over the gradients, are done layer by layer and in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import (
    conv_scale,
    damped_variance,
    precondition_conv_,
    precondition_dense_,
    update_running,
)
from bnpbench.bnp.pool import Layer
from bnpbench.errors import StatisticsError

Terms = tuple[Tensor, Tensor, float | Tensor]
"""What steps 4 and 5 need of a layer: mu and 1 / sigma~^2, both (n,), and q^2."""


@dataclass(frozen=True)
class Options:
    """The options of :class:`bnpbench.BNP`."""

    rho: float
    eps1: float
    eps2: float
    batch: bool
    scale: bool
    center: bool
    standardize: bool


class Running:
    """Running mean and variance of ``layers``, which hold views into them; all on one device.

    Attributes:
        values: (2 n,), the running means of all layers, then the running variances.
        terms: of this step, by layer, once its statistics are folded in; else None.
    """

    def __init__(self, layers: Sequence[Layer], device: torch.device, dtype: torch.dtype) -> None:
        self.layers, self.members = list(layers), frozenset(layers)
        self.device = device
        self.sizes = [layer.channels for layer in layers]
        self.length = sum(self.sizes)
        self.zeros = torch.zeros(self.length, device=device, dtype=dtype)
        self.inverse = torch.ones_like(self.zeros)  # 1 / sigma~^2 of the last step; stays 1 without standardization
        self.values = torch.cat([self.zeros, self.inverse])
        self.mean, self.variance = self.values[: self.length], self.values[self.length :]
        self.means, variances = torch.split(self.mean, self.sizes), torch.split(self.variance, self.sizes)
        self.inverses = torch.split(self.inverse, self.sizes)
        for layer, mean, variance in zip(self.layers, self.means, variances, strict=True):
            layer.running, layer.running_mean, layer.running_variance = self, mean, variance
            layer.move_sums(device)
        sizes = torch.tensor(self.sizes)
        group_sizes = torch.tensor([layer.channels // layer.groups for layer in layers for _ in range(layer.groups)])
        self.layer_of_channel = torch.arange(len(sizes)).repeat_interleave(sizes).to(device)
        self.group_of_channel = torch.arange(len(group_sizes)).repeat_interleave(group_sizes).to(device)
        self.group_sizes = group_sizes.to(device)
        self.inputs = torch.tensor([layer.inputs for layer in layers], dtype=torch.float64).to(device)
        self.terms: dict[Layer, Terms] | None = None

    def forget(self) -> None:
        """Drop the rows of all layers, and terms that were made of them."""
        self.terms = None
        for layer in self.layers:
            layer.empty()

    def begin_anew(self) -> None:
        """A forward pass after a backward pass of the lean form that no step has used: its rows are folded in for good.

        Raises:
            StatisticsError: there was such a backward pass.
        """
        done = [layer.name for layer in self.layers if layer.preconditioned]
        if done:
            raise StatisticsError(
                f"layer {done[0]!r} of the lean form is called again before precondition() was: micro-batches, and "
                "gradients that are dropped, need BNP without lean="
            )
        self.forget()

    def local_statistics(self, active: Sequence[Layer]) -> tuple[Tensor, dict[Layer, float | Tensor]]:
        """Step 1 where the host knows every count: means and variances end to end (2 n,), and q^2 of each layer."""
        pooled = {layer: layer.pooled() for layer in active}
        scales = {layer: layer.scale_of(call) for layer, call in pooled.items()}
        calls = [pooled.get(layer) or layer.resting() for layer in self.layers]
        means = [call.mean for call in calls]
        variances = [call.variance for call in calls if call.variance is not None]
        if len(variances) == len(calls):
            return torch.cat(means + variances).to(self.values), scales  # calls from before the model was cast
        # A single row has no variance: its squared distance from the running mean takes the place.
        mean = torch.cat(means).to(self.values)
        square = (mean - self.mean).square_()
        if variances:
            pairs = zip(calls, torch.split(square, self.sizes), strict=True)
            pieces = [piece if call.variance is None else call.variance for call, piece in pairs]
            square = torch.cat(pieces).to(self.values)
        return torch.cat([mean, square]), scales

    def shifted_sums(self, active: Sequence[Layer]) -> Tensor:
        """Step 1 where only the device knows the counts, or other ranks hold rows too: float64 sums to be added up.

        Returns:
            ``[rows | examples | outputs | S1 | S2]``, three numbers a layer, then sums of the rows minus the running
            mean and of the squares of that, end to end.
        """
        count = len(self.layers)
        sums = self.values.new_zeros(3 * count + 2 * self.length, dtype=torch.float64)
        counts, first, second = torch.split(sums, [3 * count, self.length, self.length])
        firsts, seconds = torch.split(first, self.sizes), torch.split(second, self.sizes)
        for layer in active:
            index = self.layers.index(layer)
            layer.add_shifted_sums(firsts[index], seconds[index], counts.view(3, count)[:, index])
        return sums

    def holds_rows(self, sums: Tensor | None, layer: Layer) -> bool:
        """Whether any rank has rows of ``layer``. Reads the device: asked only about layers without any rows here."""
        return sums is not None and bool(sums[self.layers.index(layer)] > 0)

    def statistics_of_sums(self, sums: Tensor) -> tuple[Tensor, dict[Layer, float | Tensor]]:
        """Means and variances end to end, and q^2 of each layer, from summed :meth:`shifted_sums`.

        A layer without rows keeps its running values.
        """
        count = len(self.layers)
        counts, first, second = torch.split(sums, [3 * count, self.length, self.length])
        layer_rows, examples, outputs = counts.view(3, count)
        rows = layer_rows.index_select(0, self.layer_of_channel)
        shift = first / rows
        square = second / rows
        variance = torch.where(rows == 1, square, (square - shift.square()).clamp(min=0))  # clamp lets NaN through
        statistics = torch.cat([self.values[: self.length] + shift, variance]).to(self.values.dtype)
        # One formula for both kinds: a dense layer has one position an example, and at least 1 = sqrt(1) as its scale.
        scales = conv_scale(self.inputs, examples, outputs / examples)
        assert isinstance(scales, Tensor)
        scales = torch.where(layer_rows > 0, scales, 1.0).to(self.values.dtype)
        statistics = torch.where((rows > 0).repeat(2), statistics, self.values)
        return statistics, dict(zip(self.layers, scales.unbind(), strict=True))

    def fold(self, statistics: Tensor, scales: dict[Layer, float | Tensor], options: Options) -> dict[Layer, Terms]:
        """Steps 2 and 3: update the running values of all layers; the terms of those that have a scale."""
        update_running(self.values, statistics, options.rho)
        means, inverses = (self._sliced if torch.compiler.is_compiling() else self._kept)(statistics, options)
        layers = zip(self.layers, means, inverses, strict=True)
        self.terms = {
            layer: (mean, inverse, scales[layer] if options.scale else 1.0)
            for layer, mean, inverse in layers
            if layer in scales
        }
        return self.terms

    def _kept(self, statistics: Tensor, options: Options) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Of each layer mu and 1 / (sigma^2 + eps1 max(sigma^2) + eps2), the maximum being each group's."""
        if options.standardize:
            variance = statistics[self.length :] if options.batch else self.variance
            largest = torch.segment_reduce(variance, "max", lengths=self.group_sizes, unsafe=True)
            largest = largest.index_select(0, self.group_of_channel)
            torch.add(variance, largest, alpha=options.eps1, out=self.inverse)
            self.inverse.add_(options.eps2).reciprocal_()
        if options.center and not options.batch:
            return self.means, self.inverses
        return torch.split(statistics[: self.length] if options.center else self.zeros, self.sizes), self.inverses

    def _sliced(self, statistics: Tensor, options: Options) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The same in a compiled step, which would take every view that is kept for an argument of its own."""
        mean, variance = torch.split(statistics if options.batch else self.values, self.length)
        means = torch.split(mean if options.center else torch.zeros_like(mean), self.sizes)
        if not options.standardize:
            return means, torch.split(torch.ones_like(variance), self.sizes)
        layers = zip(self.layers, torch.split(variance, self.sizes), strict=True)
        return means, [damped_variance(v, options.eps1, options.eps2, layer.groups).reciprocal() for layer, v in layers]


def autocasts(device_type: str) -> bool:
    """Whether products on such a device are autocast where we are."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def precondition(layer: Layer, mean: Tensor, inverse_variance: Tensor, scale: float | Tensor) -> None:
    """Steps 4 and 5 on ``.grad`` of one layer, in place."""
    weight_grad, bias_grad = layer.weight.grad, layer.bias_grad
    assert weight_grad is not None
    # Gradients of low precision: the arithmetic is done in the precision of the statistics.
    weight = weight_grad if weight_grad.dtype == mean.dtype else weight_grad.to(mean.dtype)
    bias = bias_grad if bias_grad is None or bias_grad.dtype == mean.dtype else bias_grad.to(mean.dtype)
    if layer.spatial_dims:
        precondition_conv_(weight, bias, mean, inverse_variance, scale, layer.groups)
    else:
        precondition_dense_(weight, bias, mean, inverse_variance, scale)
    if weight is not weight_grad:
        weight_grad.copy_(weight)
    if bias is not None and bias_grad is not None and bias is not bias_grad:
        bias_grad.copy_(bias)
