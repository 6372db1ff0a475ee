"""The five-layer convolutional network of sections 5.2 and 5.3."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Position, Positive
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 18  # pixels a side: three valid 3 x 3 convolutions and two poolings by 2 leave one position of it


class Cnn(NetworkPlugin):
    """conv32 - pool - conv64 - pool - conv32 - dense - dense: 3 x 3 without padding, max-pooling by 2.

    ReLU behind all but the last layer. A normalization at ``"post"`` stands behind the pooling
    where there is one, since it normalizes the next layer's input; the third convolution's
    normalizes by channel, before the flattening. Layers are called ``conv1``, ``conv1_relu``,
    ``conv1_pool``, ``conv1_norm``, ..., ``dense``, ``dense_norm``, ``output``.
    """

    images: ClassVar[bool] = True
    kind: Literal["cnn"]
    channels: tuple[Positive, Positive, Positive] = (32, 64, 32)
    dense: Positive = 64

    def unreadable(self, input_shape: tuple[int, ...]) -> str | None:
        if (fault := super().unreadable(input_shape)) is not None:
            return fault
        return f"needs images of at least {SMALLEST} x {SMALLEST}" if min(input_shape[1:]) < SMALLEST else None

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Behind each convolution (and its pooling, at ``post``), and the dense layer."""
        sides = input_shape[1:]
        for number, features in enumerate(self.channels, start=1):
            sides = tuple(side - 2 for side in sides)
            pooled = tuple(side // 2 for side in sides) if number < 3 else sides
            yield Site(f"conv{number}", features, prod(pooled if position == "post" else sides))
            sides = pooled
        yield Site("dense", self.dense)

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        from bnpbench.bnp.lean import Linear

        channels, height, width = input_shape
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, features in enumerate(self.channels, start=1):
            name, pooled = f"conv{number}", number < 3
            layers[name] = nn.Conv2d(channels, features, 3)
            height, width = height - 2, width - 2
            if normalization.position == "pre":
                layers[f"{name}_norm"] = normalization.make(features, 2, name)
            layers[f"{name}_relu"] = nn.ReLU()
            if pooled:
                layers[f"{name}_pool"] = nn.MaxPool2d(2)
                height, width = height // 2, width // 2
            if normalization.position == "post":
                layers[f"{name}_norm"] = normalization.make(features, 2, name)
            channels = features
        layers["flatten"] = nn.Flatten()
        layers["dense"] = Linear(channels * height * width, self.dense)
        if normalization.position == "pre":
            layers["dense_norm"] = normalization.make(self.dense, 0, "dense")
        layers["dense_relu"] = nn.ReLU()
        if normalization.position == "post":
            layers["dense_norm"] = normalization.make(self.dense, 0, "dense")
        layers["output"] = Linear(self.dense, classes)
        return nn.Sequential(layers)
