"""Batch normalization preconditioning of a network with group normalization."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.methods.base import Ink
from bnpbench.methods.group_norm import Groups
from bnpbench.methods.preconditioning import Preconditioning


class BnpGroupNorm(Preconditioning, Groups):
    """BNP on a network with group normalization."""

    preconditioned: ClassVar[bool] = True
    ink: ClassVar[Ink] = Ink("#882255", "#d0609a", "p")
    kind: Literal["bnp+gn"]
