"""Step 1 for all layers on a device at once: their pooled means and variances, and q^2 of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import conv_scale
from bnpbench.bnp.layer import Layer
from bnpbench.bnp.moments import MomentsCall, MomentsPool
from bnpbench.bnp.running import Section


class Batch:
    """Step 1 of the layers of a section, and q^2 of those that have rows; a layer without keeps its running values.

    Args:
        section: the running values, before step 2.
        scales: q^2 of layers.
        calls: of each layer of the section, all its calls as one; empty where only the device knows them.
    """

    def __init__(
        self, section: Section, scales: dict[Layer, float | Tensor], calls: Sequence[MomentsCall | None] = ()
    ) -> None:
        self.scales, self.calls, self._section = scales, calls, section

    @cached_property
    def whole(self) -> Tensor:
        """Means, then variances of all layers, (2 n,). To be asked for before step 2, if ever."""
        section = self._section
        means: list[Tensor] = []
        variances: list[Tensor | None] = []
        for call, (_, mean, variance) in zip(self.calls, section.slices(), strict=True):
            means.append(mean if call is None else call.mean)
            variances.append(variance if call is None else call.variance)
        known = [variance for variance in variances if variance is not None]
        if len(known) == len(variances):
            return torch.cat(means + known).to(section.values)  # calls from before the model was cast
        # A single row has no variance: its squared distance from the running mean takes the place.
        mean = torch.cat(means).to(section.values)
        square = (mean - section.mean).square_()
        if known:
            pairs = zip(variances, torch.split(square, section.sizes), strict=True)
            square = torch.cat([piece if variance is None else variance for variance, piece in pairs])
        return torch.cat([mean, square.to(section.values)])


def local_statistics(section: Section, active: Sequence[MomentsPool]) -> Batch:
    """Where the host knows every count.

    Args:
        section: the running values of the layers.
        active: pools with rows.
    """
    calls = {pool.layer: pool.pooled() for pool in active}
    scales = {layer: layer.scale(call.counts) for layer, call in calls.items()}
    return Batch(section, scales, [calls.get(layer) for layer in section.layers])


def shifted_sums(section: Section, pools: Sequence[MomentsPool]) -> Tensor:
    """Where only the device knows the counts, or other ranks hold rows too: sums to be added up.

    Args:
        section: the running values of the layers.
        pools: with or without rows.

    Returns:
        In float64 ``[rows | examples | outputs | S1 | S2]``: three numbers a layer, then sums of the rows minus the
        running mean (n,) and of the squares of that (n,).
    """
    count = len(section.layers)
    sums = section.values.new_zeros(3 * count + 2 * section.length, dtype=torch.float64)
    counts, first, second = torch.split(sums, [3 * count, section.length, section.length])
    firsts, seconds = torch.split(first, section.sizes), torch.split(second, section.sizes)
    for pool in pools:
        index = section.layers.index(pool.layer)
        pool.add_shifted_sums(firsts[index], seconds[index], counts.view(3, count)[:, index])
    return sums


def statistics_of_sums(section: Section, sums: Tensor) -> Batch:
    """From :func:`shifted_sums`, added up over all ranks."""
    count = len(section.layers)
    counts, first, second = torch.split(sums, [3 * count, section.length, section.length])
    layer_rows, examples, outputs = counts.view(3, count)
    rows = layer_rows.index_select(0, section.layer_of_channel)
    shift = first / rows
    square = second / rows
    variance = torch.where(rows == 1, square, (square - shift.square()).clamp(min=0))  # clamp lets NaN through
    statistics = torch.cat([section.values[: section.length] + shift, variance]).to(section.values.dtype)
    # One formula for both kinds: a dense layer has one position an example, and at least 1 = sqrt(1) as its scale.
    scales = conv_scale(section.inputs, examples, outputs / examples)
    assert isinstance(scales, Tensor)
    scales = torch.where(layer_rows > 0, scales, 1.0).to(section.values.dtype)
    batch = Batch(section, dict(zip(section.layers, scales.unbind(), strict=True)))
    batch.whole = torch.where((rows > 0).repeat(2), statistics, section.values)
    return batch


def has_rows(section: Section, sums: Tensor | None, layer: Layer) -> bool:
    """Whether any rank has rows of ``layer``. Reads the device: asked only about layers without any rows here."""
    return sums is not None and bool(sums[section.layers.index(layer)] > 0)
