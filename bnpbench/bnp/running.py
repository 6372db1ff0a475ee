"""Running means and variances of all layers, end to end in one tensor for each device, and steps 2 and 3 on them.

Whatever needs a whole vector per layer is done for all layers of a device at once; only steps 4 and 5, which go over
the gradients, are done layer by layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import damped_variance
from bnpbench.bnp.layer import Layer, Terms


@dataclass(frozen=True)
class Hyperparameters:
    """The options of :class:`bnpbench.BNP` that its arithmetic depends on; ``batch``: statistics="batch"."""

    rho: float
    eps1: float
    eps2: float
    batch: bool
    scale: bool
    center: bool
    standardize: bool


class Running:
    """The running values of all layers, on the devices of their weights.

    Args:
        layers: in the model's order.

    Attributes:
        sections: the values on each device.
        mean: of each layer by its name, (n,), a view into its section.
        variance: the same of the variances.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.sections: list[Section] = []
        self.mean: dict[str, Tensor] = {}
        self.variance: dict[str, Tensor] = {}
        self.place()

    def place(self) -> None:
        """Lay the values out on the devices and in the precision of the weights as they are now, and keep their values.

        They are in float32, or float64 where any weight on the device is.
        """
        before = self.state()
        self.sections = []
        for device in dict.fromkeys(layer.weight.device for layer in self.layers):
            layers = [layer for layer in self.layers if layer.weight.device == device]
            double = any(layer.weight.dtype == torch.float64 for layer in layers)
            self.sections.append(Section(layers, device, torch.float64 if double else torch.float32))
        slices = [values for section in self.sections for values in section.slices()]
        self.mean = {layer.name: mean for layer, mean, _ in slices}
        self.variance = {layer.name: variance for layer, _, variance in slices}
        for key, value in self.state().items():
            if key in before and (value.is_meta or not before[key].is_meta):  # what was on meta has no values to keep
                value.copy_(before[key])

    def section_of(self, layer: Layer) -> Section:
        """The values that ``layer``'s are among."""
        return next(section for section in self.sections if layer in section.members)

    def state(self) -> dict[str, Tensor]:
        """The values by the keys of ``BNP.state_dict``, not copied."""
        values = {}
        for layer in self.layers:
            if layer.name in self.mean:
                prefix = f"{layer.name}." if layer.name else ""
                values[f"{prefix}running_mean"] = self.mean[layer.name]
                values[f"{prefix}running_var"] = self.variance[layer.name]
        return values


class Section:
    """The running values of ``layers``, which are all on ``device``.

    Attributes:
        sizes: channels of each layer.
        length: n, of all layers together.
        values: (2 n,), the running means of all layers, then the running variances.
        means, variances: views into ``values``, one a layer.
    """

    def __init__(self, layers: Sequence[Layer], device: torch.device, dtype: torch.dtype) -> None:
        self.layers, self.members, self.device = layers, frozenset(layers), device
        self.sizes = [layer.channels for layer in layers]
        self.length = sum(self.sizes)
        self._zeros = torch.zeros(self.length, device=device, dtype=dtype)
        self._inverse = torch.ones_like(self._zeros)  # 1 / sigma~^2 of the last step; stays 1 without standardization
        self.values = torch.cat([self._zeros, self._inverse])
        self.mean, self._variance = self.values[: self.length], self.values[self.length :]
        self.means, self.variances = torch.split(self.mean, self.sizes), torch.split(self._variance, self.sizes)
        self._inverses = torch.split(self._inverse, self.sizes)
        sizes = torch.tensor(self.sizes)
        group_sizes = torch.tensor([layer.channels // layer.groups for layer in layers for _ in range(layer.groups)])
        self.layer_of_channel = torch.arange(len(sizes)).repeat_interleave(sizes).to(device)
        self._group_of_channel = torch.arange(len(group_sizes)).repeat_interleave(group_sizes).to(device)
        # Where each group begins and ends: on CUDA by offsets, which the kernel would else compute, three more a step.
        offsets = torch.cat([group_sizes.new_zeros(1), group_sizes.cumsum(0)])
        on_cuda = device.type == "cuda"
        self._group_offsets = offsets.to(device) if on_cuda else None
        self._group_lengths = None if on_cuda else group_sizes.to(device)
        self.inputs = torch.tensor([layer.inputs for layer in layers], dtype=torch.float64).to(device)

    def slices(self) -> list[tuple[Layer, Tensor, Tensor]]:
        """Each layer with its running mean and variance, both (n,) and views into ``values``."""
        return list(zip(self.layers, self.means, self.variances, strict=True))

    def terms(
        self, statistics: Tensor, scales: Mapping[Layer, float | Tensor], options: Hyperparameters
    ) -> dict[Layer, Terms]:
        """Step 3, when the running values are those after this step.

        Args:
            statistics: as ``values``, of this step; a layer that has no part in the step gives its running values.
            scales: q^2 of the layers that have a part in it.
            options: of the step.

        Returns:
            The terms of the layers in ``scales``.
        """
        means, inverses = (self._sliced if torch.compiler.is_compiling() else self._kept)(statistics, options)
        layers = zip(self.layers, means, inverses, strict=True)
        return {
            layer: Terms(mean, inverse, scales[layer] if options.scale else 1.0)
            for layer, mean, inverse in layers
            if layer in scales
        }

    def _kept(self, statistics: Tensor, options: Hyperparameters) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """mu and 1 / (sigma^2 + eps1 max(sigma^2) + eps2) of each layer, the maximum being each group's.

        They are views that this object has kept, so that a step makes none.
        """
        if options.standardize:
            variance = statistics[self.length :] if options.batch else self._variance
            largest = torch.segment_reduce(
                variance, "max", lengths=self._group_lengths, offsets=self._group_offsets, unsafe=True
            )
            largest = largest.index_select(0, self._group_of_channel)
            torch.add(variance, largest, alpha=options.eps1, out=self._inverse)
            self._inverse.add_(options.eps2).reciprocal_()
        if options.center and not options.batch:
            return self.means, self._inverses
        return torch.split(statistics[: self.length] if options.center else self._zeros, self.sizes), self._inverses

    def _sliced(self, statistics: Tensor, options: Hyperparameters) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The same for a step that is compiled: each view that was kept would be one more argument of its graph."""
        mean, variance = torch.split(statistics if options.batch else self.values, self.length)
        means = torch.split(mean if options.center else torch.zeros_like(mean), self.sizes)
        if not options.standardize:
            return means, torch.split(torch.ones_like(variance), self.sizes)
        layers = zip(self.layers, torch.split(variance, self.sizes), strict=True)
        return means, [damped_variance(v, options.eps1, options.eps2, layer.groups).reciprocal() for layer, v in layers]
