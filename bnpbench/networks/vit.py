"""A small vision transformer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.fields import Positive
from bnpbench.networks.transformer import TransformerNetwork
from bnpbench.sites import Normalization

if TYPE_CHECKING:
    from torch import nn


class Vit(TransformerNetwork):
    """A vision transformer (Dosovitskiy et al. 2021) of dense layers alone: patches, fixed positions, their mean."""

    images: ClassVar[bool] = True
    kind: Literal["vit"]
    patch: Positive = 4

    def unreadable(self, input_shape: tuple[int, ...]) -> str | None:
        if (fault := super().unreadable(input_shape)) is not None:
            return fault
        odd = [side for side in input_shape[1:] if side % self.patch]
        return f"cuts images into patches of {self.patch} x {self.patch}, which do not divide {odd[0]}" if odd else None

    def length(self, input_shape: tuple[int, ...]) -> int:
        return prod(side // self.patch for side in input_shape[1:])

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from bnpbench.layers.transformer import ImageTransformer

        return ImageTransformer(input_shape, self.patch, classes, **self.options(normalization))
