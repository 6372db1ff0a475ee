"""Gaussian classes, generated."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bnpbench.datasets.base import DatasetPlugin, DataShape
from bnpbench.fields import Positive

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.datasets.base import Tensors

SEPARATION = 3.0  # of a class's mean from the origin, in standard deviations of the noise


class Synthetic(DatasetPlugin):
    """Gaussian classes of any shape: a mean per class at distance about 3 from 0, plus standard normal noise.

    Everything is drawn on the CPU from ``seed``; the classes come in turn, so they are balanced.
    """

    kind: Literal["synthetic"]
    shape: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=4)] = (64,)
    classes: Annotated[int, Field(ge=2)] = 10
    train: Positive = 2000
    test: Positive = 500
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def whence(cls) -> str:
        return "Gaussian classes, generated"

    def describe(self) -> DataShape:
        return DataShape(self.shape, self.classes, self.train, self.test)

    def load(self) -> Tensors:
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        means = torch.randn(self.classes, *self.shape, generator=generator)
        means *= SEPARATION / sqrt(prod(self.shape))

        def draw(count: int) -> tuple[Tensor, Tensor]:
            labels = torch.arange(count) % self.classes
            return means[labels] + torch.randn(count, *self.shape, generator=generator), labels

        return *draw(self.train), *draw(self.test)
