"""The residual network for CIFAR."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bnpbench.fields import Position
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from torch import nn


class ResNet(NetworkPlugin):
    """The residual network for CIFAR of depth 6n+2 (He et al. 2015), with option-A shortcuts."""

    images: ClassVar[bool] = True
    kind: Literal["resnet"]
    depth: Annotated[int, Field(ge=8)]
    preactivation: bool = False

    @model_validator(mode="after")
    def _depth_is_6n_plus_2(self) -> Self:
        if (self.depth - 2) % 6:
            raise ValueError(f"depth is 6n+2 (8, 14, 20, 32, 44, 56, 110, ...), not {self.depth}")
        return self

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """At each convolution, whatever the position."""
        sides, features = input_shape[1:], 16
        yield Site("conv1", features, prod(sides))
        for stage, width in enumerate((16, 32, 64), start=1):
            for block in range((self.depth - 2) // 6):
                name = f"stage{stage}.{block}"
                if self.preactivation and (stage > 1 or block):
                    yield Site(f"the input of {name}", features, prod(sides))
                if stage > 1 and block == 0:  # begins with a stride of 2
                    sides = tuple(ceil(side / 2) for side in sides)
                features = width
                yield Site(f"{name}.conv1", width, prod(sides))
                if not self.preactivation:
                    yield Site(f"{name}.conv2", width, prod(sides))
        if self.preactivation:
            yield Site(f"{name}.conv2", features, prod(sides))

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from bnpbench.layers.residual import CifarResNet

        return CifarResNet(self.depth, self.preactivation, normalization, input_shape[0], classes)
