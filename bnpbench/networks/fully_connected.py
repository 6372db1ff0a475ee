"""Dense networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from bnpbench.fields import Position, Positive
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from torch import nn


class FullyConnected(NetworkPlugin):
    """Dense layers of the given hidden widths with ReLU, then a dense layer of one output a class.

    Reads rows (N, n), n the number of values of an example. Layers are called ``hidden1``, ``hidden1_relu``,
    ``hidden1_norm``, ... and ``output``.
    """

    images: ClassVar[bool] = False
    kind: Literal["fc"]
    hidden: Annotated[tuple[Positive, ...], Field(max_length=1000)]

    def reads(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (prod(input_shape),)

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Behind each hidden layer."""
        for number, width in enumerate(self.hidden, start=1):
            yield Site(f"hidden{number}", width)

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        from bnpbench.bnp.lean import Linear

        layers: OrderedDict[str, nn.Module] = OrderedDict()
        features = prod(input_shape)
        for number, width in enumerate(self.hidden, start=1):
            name = f"hidden{number}"
            layers[name] = Linear(features, width)
            if normalization.position == "pre":
                layers[f"{name}_norm"] = normalization.make(width, 0, name)
            layers[f"{name}_relu"] = nn.ReLU()
            if normalization.position == "post":
                layers[f"{name}_norm"] = normalization.make(width, 0, name)
            features = width
        layers["output"] = Linear(features, classes)
        return nn.Sequential(layers)
