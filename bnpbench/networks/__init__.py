"""The networks, one builder a kind.

A builder takes the network's options, a ``Normalization``, the shape of one example and the
number of classes, and returns a module from (N, ...) to logits (N, classes). ``NETWORKS`` is the
table; adding a network is one entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Any

from torch import nn

from bnpbench.layers import Normalization
from bnpbench.networks.cnn import cnn
from bnpbench.networks.fully_connected import fully_connected
from bnpbench.networks.resnet import resnet, resnet18
from bnpbench.suite.vocabulary import NetworkOptions

Builder = Callable[[Any, Normalization, tuple[int, ...], int], nn.Module]

NETWORKS: dict[str, Builder] = {
    "fc": fully_connected,
    "cnn": cnn,
    "resnet": resnet,
    "resnet18": resnet18,
}


def build(
    options: NetworkOptions, normalization: Normalization, input_shape: tuple[int, ...], classes: int
) -> nn.Module:
    """The network of ``options`` for examples of ``input_shape`` (one example's, without N).

    Where the input is normalized, that layer is called ``input_norm``; the others keep their names in a sequential
    network, and stand under ``network`` in any other.

    Raises:
        SuiteError: the network does not fit the examples, or the normalization a layer.
    """
    network = NETWORKS[options.kind](options, normalization, input_shape, classes)
    if not normalization.input:
        return network
    features, *positions = reads(options, input_shape)
    first = normalization.make(features, len(positions), "the input")
    layers = network.named_children() if isinstance(network, nn.Sequential) else [("network", network)]
    return nn.Sequential(OrderedDict([("input_norm", first), *layers]))


def reads(options: NetworkOptions, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one example as the network reads it: rows of features for ``fc``, else ``input_shape``."""
    return (prod(input_shape),) if options.kind == "fc" else tuple(input_shape)
