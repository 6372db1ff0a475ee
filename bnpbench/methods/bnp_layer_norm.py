"""Batch normalization preconditioning of a network with layer normalization."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.methods.base import Ink
from bnpbench.methods.layer_norm import OverExamples
from bnpbench.methods.preconditioning import Preconditioning


class BnpLayerNorm(Preconditioning, OverExamples):
    """BNP on a network with layer normalization."""

    preconditioned: ClassVar[bool] = True
    ink: ClassVar[Ink] = Ink("#5c5c00", "#b8b83a", "8")
    kind: Literal["bnp+ln"]
