"""Batch normalization before the activation."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.fields import Position
from bnpbench.methods.base import Ink
from bnpbench.methods.batch_norm import AnyBatchNorm


class BatchNormBefore(AnyBatchNorm):
    """Batch normalization between a layer and its activation, as Ioffe and Szegedy 2015 place it."""

    ink: ClassVar[Ink] = Ink("#332288", "#9a8cf5", "h")
    position: ClassVar[Position] = "pre"
    kind: Literal["bn-pre"]

    @model_validator(mode="after")
    def _input_of_a_layer(self) -> Self:
        if self.input:
            raise ValueError(
                "bn-pre stands between a layer and its activation and normalizes no layer's input; take bn"
            )
        return self
