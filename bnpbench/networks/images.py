"""What convolutional networks ask of their input."""

from __future__ import annotations

from bnpbench.errors import SuiteError


def image_shape(kind: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """``input_shape`` as (channels, height, width).

    Raises:
        SuiteError: the examples are no images.
    """
    if len(input_shape) != 3:
        shape = " x ".join(map(str, input_shape))
        raise SuiteError(
            f"network {kind!r} reads images (channels, height, width), and the data set's examples have the "
            f"shape {shape}; use the network fc or a data set of images"
        )
    return input_shape[0], input_shape[1], input_shape[2]
