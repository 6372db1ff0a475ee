"""The networks, one builder a kind.

A builder takes the network's options, a ``Normalization``, the shape of one example and the
number of classes, and returns a module from (N, ...) to logits (N, classes). ``NETWORKS`` is the
table; adding a network is one entry.
"""

from __future__ import annotations

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

    Raises:
        SuiteError: the network does not fit the examples, or the normalization a layer.
    """
    return NETWORKS[options.kind](options, normalization, input_shape, classes)


def reads(options: NetworkOptions, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one example as the network reads it: rows of features for ``fc``, else ``input_shape``."""
    return (prod(input_shape),) if options.kind == "fc" else tuple(input_shape)
