"""A network of others as its author made it."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.fields import Sites
from bnpbench.methods.base import Ink, MethodPlugin


class Native(MethodPlugin):
    """The network as its author made it, with the normalizations that it has, and plain gradients."""

    sites: ClassVar[Sites] = "keep"
    ink: ClassVar[Ink] = Ink("#999933", "#d1d16a", "h")
    kind: Literal["native"]
