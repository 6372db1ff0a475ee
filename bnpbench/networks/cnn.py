"""The five-layer convolutional network of sections 5.2 and 5.3."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from bnpbench.bnp.lean import Linear
from bnpbench.errors import SuiteError
from bnpbench.layers import Normalization
from bnpbench.networks.images import image_shape
from bnpbench.suite.vocabulary import Cnn

SMALLEST = 18  # pixels a side: 3 x 3, twice through a valid 3 x 3 convolution and a pooling


def cnn(options: Cnn, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Three 3 x 3 convolutions without padding, max-pooling by 2 behind the first two, two dense layers.

    ReLU behind all but the last layer. A normalization at ``"post"`` stands behind the pooling
    where there is one, since it normalizes the next layer's input; the third convolution's
    normalizes by channel, before the flattening. Layers are called ``conv1``, ``conv1_relu``,
    ``conv1_pool``, ``conv1_norm``, ..., ``dense``, ``dense_norm``, ``output``.

    Raises:
        SuiteError: the input is no image, or too small for the third convolution.
    """
    channels, height, width = image_shape("cnn", input_shape)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, features in enumerate(options.channels, start=1):
        name, pooled = f"conv{number}", number < 3
        if min(height, width) < 3:
            raise SuiteError(
                f"network 'cnn': layer {name!r} has a 3 x 3 kernel and would read a map of {height} x {width}; "
                f"images of {input_shape[1]} x {input_shape[2]} are too small, it takes {SMALLEST} x {SMALLEST}"
            )
        layers[name] = nn.Conv2d(channels, features, 3)
        height, width = height - 2, width - 2
        if normalization.position == "pre":
            layers[f"{name}_norm"] = normalization.make(features, 2, name)
        layers[f"{name}_relu"] = nn.ReLU()
        if pooled:
            layers[f"{name}_pool"] = nn.MaxPool2d(2)
            height, width = height // 2, width // 2
        if normalization.position == "post":
            layers[f"{name}_norm"] = normalization.make(features, 2, name)
        channels = features
    layers["flatten"] = nn.Flatten()
    layers["dense"] = Linear(channels * height * width, options.dense)
    if normalization.position == "pre":
        layers["dense_norm"] = normalization.make(options.dense, 0, "dense")
    layers["dense_relu"] = nn.ReLU()
    if normalization.position == "post":
        layers["dense_norm"] = normalization.make(options.dense, 0, "dense")
    layers["output"] = Linear(options.dense, classes)
    return nn.Sequential(layers)
