"""Dense networks."""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import nn

from bnpbench.bnp.lean import Linear
from bnpbench.layers import Normalization
from bnpbench.suite.vocabulary import FullyConnected


def fully_connected(
    options: FullyConnected, normalization: Normalization, input_shape: tuple[int, ...], classes: int
) -> nn.Sequential:
    """Dense layers with ReLU of the widths ``options.hidden``, then one of ``classes`` outputs.

    Reads rows (N, n), n the product of ``input_shape``. Layers are called ``hidden1``,
    ``hidden1_relu``, ``hidden1_norm``, ... and ``output``.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    features = prod(input_shape)
    for number, width in enumerate(options.hidden, start=1):
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
