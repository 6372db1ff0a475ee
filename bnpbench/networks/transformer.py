"""What transformers of dense layers have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from bnpbench.fields import Position, Positive
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from bnpbench.layers.transformer import Options


class TransformerNetwork(NetworkPlugin):
    """What transformers of dense layers have in common; their normalizations are of tokens, each a row.

    Attributes:
        width: features of a token.
        depth: blocks.
        heads: of the attention.
        norm: where a block has its normalizations, whatever the method's position: ``"first"`` (Pre-LN), or
            ``"last"``, behind the sums (Post-LN).
    """

    width: Annotated[int, Field(ge=2, multiple_of=2)] = 64
    depth: Positive = 4
    heads: Positive = 4
    norm: Literal["first", "last"] = "first"

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.width}")
        return self

    def length(self, input_shape: tuple[int, ...]) -> int:
        """How many tokens an example has.

        Args:
            input_shape: of one example, as the network reads it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no length()")

    def options(self, normalization: Normalization) -> Options:
        """Those of ``bnpbench.layers.transformer.Transformer``."""
        return {
            "width": self.width,
            "heads": self.heads,
            "depth": self.depth,
            "first": self.norm == "first",
            "normalization": normalization,
        }

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Two a block, and behind the last one where blocks begin with theirs."""
        count = self.length(input_shape)
        for number in range(self.depth):
            yield Site(f"blocks.{number}.attention", self.width, count)
            yield Site(f"blocks.{number}.dense", self.width, count)
        if self.norm == "first":
            yield Site("the last block", self.width, count)
