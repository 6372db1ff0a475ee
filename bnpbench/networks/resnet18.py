"""torchvision's ResNet-18."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Position
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from torch import nn


class ResNet18(NetworkPlugin):
    """torchvision's ResNet-18 for 224 x 224 images; its first convolution reads as many channels as images have."""

    images: ClassVar[bool] = True
    kind: Literal["resnet18"]

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Behind each convolution, whatever the position."""
        number = count(1)
        sides = tuple(ceil(side / 2) for side in input_shape[1:])
        yield Site(_site(next(number), 64), 64, prod(sides))
        for width in (64, 128, 256, 512):  # behind a pooling, or begun by a convolution, with a stride of 2
            sides = tuple(ceil(side / 2) for side in sides)
            for _ in range(4 if width == 64 else 5):  # shortcuts to more channels have one of their own
                yield Site(_site(next(number), width), width, prod(sides))

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        import torch
        from torch import nn
        from torchvision.models import resnet18

        channels, number = input_shape[0], count(1)
        model: nn.Module = resnet18(
            num_classes=classes,
            norm_layer=lambda features: normalization.make(features, 2, _site(next(number), features)),
        )
        if channels != 3:
            model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        if normalization.conv_bias:
            for module in model.modules():
                if isinstance(module, nn.Conv2d):
                    module.bias = nn.Parameter(torch.zeros(module.out_channels))
        return model


def _site(number: int, features: int) -> str:
    """torchvision does not say which convolution a normalization follows: they are numbered as they are made."""
    return f"convolution {number}, of {features} channels"
