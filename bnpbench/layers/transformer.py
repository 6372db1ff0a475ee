"""Transformers of dense layers, so that every weight of theirs is one that BNP conditions."""

from __future__ import annotations

import math
from typing import TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.layers.rows import Rows
from bnpbench.sites import Normalization


class Attention(nn.Module):
    """Self-attention of several heads (Vaswani et al. 2017); queries, keys and values come from one dense layer.

    Args:
        width: features of a token.
        heads: that divide the width.
        causal: whether a token sees none that comes after it.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, width) to the same."""
        examples, length, _ = x.shape
        q, k, v = self.qkv(x).view(examples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        attended: Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return attended


class Block(nn.Module):
    """Attention and a dense network of one hidden layer with GELU, each with a shortcut and a normalization.

    Args:
        width, heads, causal: as of ``Attention``.
        hidden: width of the hidden layer.
        first: whether the normalization stands in front of each (Pre-LN), or behind the sum (Post-LN).
        normalization: what stands at each place.
        name: of the block.
    """

    def __init__(
        self, width: int, heads: int, causal: bool, hidden: int, first: bool, normalization: Normalization, name: str
    ) -> None:
        super().__init__()
        self.first = first
        self.norm1 = Rows(normalization.make(width, 0, f"{name}.attention"))
        self.attention = Attention(width, heads, causal)
        self.norm2 = Rows(normalization.make(width, 0, f"{name}.dense"))
        self.dense = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, width) to the same."""
        if self.first:
            x = x + self.attention(self.norm1(x))
            mixed: Tensor = x + self.dense(self.norm2(x))
            return mixed
        x = self.norm1(x + self.attention(x))
        normalized: Tensor = self.norm2(x + self.dense(x))
        return normalized


class Options(TypedDict):
    """Of a transformer, whatever it reads."""

    width: int
    heads: int
    depth: int
    first: bool
    normalization: Normalization


class Transformer(nn.Module):
    """A dense embedding plus fixed positions, blocks, a last normalization where they begin with one, a dense layer.

    Args:
        inputs: features of a token as it comes.
        length: tokens of an example.
        classes: number of outputs.
        width, heads, depth: features of a token within, heads, blocks.
        causal: whether a token sees none that comes after it.
        first: as of ``Block``.
        normalization: what stands at each place.
    """

    positions: Tensor

    def __init__(
        self,
        inputs: int,
        length: int,
        classes: int,
        *,
        width: int,
        heads: int,
        depth: int,
        causal: bool,
        first: bool,
        normalization: Normalization,
    ) -> None:
        super().__init__()
        self.embedding = nn.Linear(inputs, width)
        self.register_buffer("positions", waves(length, width), persistent=False)
        self.blocks = nn.Sequential(
            *(
                Block(width, heads, causal, 4 * width, first, normalization, f"blocks.{number}")
                for number in range(depth)
            )
        )
        self.last_norm = Rows(normalization.make(width, 0, "the last block")) if first else None
        self.output = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features (N, T, width) of tokens (N, T, inputs), before the output layer."""
        x: Tensor = self.blocks(self.embedding(tokens) + self.positions)
        return x if self.last_norm is None else self.last_norm(x)


class ImageTransformer(Transformer):
    """Logits (N, classes) of images: their patches are tokens, whose features are averaged (Beyer et al. 2022).

    Args:
        input_shape: channels, height and width.
        patch: pixels of a side of a patch, which divide height and width.
        options: the others of ``Transformer``.
    """

    def __init__(self, input_shape: tuple[int, ...], patch: int, classes: int, **options: Unpack[Options]) -> None:
        channels, height, width = input_shape
        super().__init__(channels * patch**2, height // patch * (width // patch), classes, causal=False, **options)
        self.patch = patch

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, height, width) to (N, classes)."""
        cut = images.unflatten(3, (-1, self.patch)).unflatten(2, (-1, self.patch))  # (N, c, h, p, w, p)
        tokens = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        logits: Tensor = self.output(super().forward(tokens).mean(1))
        return logits


class TextTransformer(Transformer):
    """Logits of the token that comes next, at each position.

    Args:
        length: tokens of an example.
        vocabulary: how many different ones there are.
        options: the others of ``Transformer``.
    """

    def __init__(self, length: int, vocabulary: int, **options: Unpack[Options]) -> None:
        super().__init__(vocabulary, length, vocabulary, causal=True, **options)
        self.vocabulary = vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        """Whole numbers (N, T) below ``vocabulary`` to (N, vocabulary, T), as cross-entropy takes them."""
        known = torch.arange(self.vocabulary, device=tokens.device)  # one_hot would read a number back
        rows = (tokens.unsqueeze(2) == known).to(self.output.weight.dtype)
        logits: Tensor = self.output(super().forward(rows))
        return logits.transpose(1, 2)


def waves(length: int, width: int) -> Tensor:
    """Positions of tokens as sines and cosines (Vaswani et al. 2017, section 3.5).

    Args:
        length: tokens.
        width: features of each, even.

    Returns:
        (length, width) in float32.
    """
    at = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    angles = at * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1).float()
