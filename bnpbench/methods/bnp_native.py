"""Batch normalization preconditioning of a network of others as its author made it."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.fields import Sites
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.methods.preconditioning import Preconditioning


class BnpNative(MethodPlugin, Preconditioning):
    """BNP on the network as its author made it, with the normalizations that it has."""

    preconditioned: ClassVar[bool] = True
    sites: ClassVar[Sites] = "keep"
    ink: ClassVar[Ink] = Ink("#aa4499", "#dd77cc", "X")
    kind: Literal["bnp+native"]
