"""A small language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.networks.transformer import TransformerNetwork
from bnpbench.sites import Normalization

if TYPE_CHECKING:
    from torch import nn


class Gpt(TransformerNetwork):
    """A decoder of dense layers alone, which says at each position what token follows (Radford et al. 2018)."""

    images: ClassVar[bool] = False
    tokens: ClassVar[bool] = True
    kind: Literal["gpt"]

    def length(self, input_shape: tuple[int, ...]) -> int:
        return input_shape[0]

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from bnpbench.layers.transformer import TextTransformer

        return TextTransformer(input_shape[0], classes, **self.options(normalization))
