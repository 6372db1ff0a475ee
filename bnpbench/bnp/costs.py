"""What BNP and BN cost per step, by the paper's formulas, and the shapes to put into them.

An addition, subtraction, multiplication or division of numbers is one operation, so that a dot product of length n is
2n; maximum, square root and reciprocal count nothing, nor does what gives a single number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.bnp.layer import Counts, Layer, input_of
from bnpbench.bnp.tracker import Tracker


def bnp_flops(n_in: int, n_out: int, batch: int) -> int:
    """BNP on a dense layer: ``4nN + 6nn' + 2n' + 8n`` operations a step.

    Args:
        n_in, n_out: n and n', the layer's width before and after.
        batch: N, the rows of a mini-batch.

    Returns:
        Operations.

    Source: Proposition 6.
    """
    return conv_bnp_flops(n_in, n_out, taps=1, rows=batch)


def conv_bnp_flops(channels_in: int, channels_out: int, *, taps: int, rows: int, groups: int = 1) -> int:
    """BNP on a convolution: ``4cNrs + 6(c/groups)k^2c' + 2c' + 8c`` operations a step.

    Args:
        channels_in, channels_out: c and c'.
        taps: k^2, of the kernel.
        rows: N r s, examples times *input* positions.
        groups: each is a layer of its own.

    Returns:
        Operations.

    Source: Algorithm 3, counted as Proposition 6 counts.
    """
    weights = channels_in // groups * taps * channels_out
    return 4 * channels_in * rows + 6 * weights + 2 * channels_out + 8 * channels_in


def lean_bnp_flops(n_in: int, n_out: int, batch: int) -> int:
    """BNP in its lean form on a dense layer: ``8nN + 2n'N + 9n + 2n'`` operations a step.

    The centred, scaled activations take the place of the raw ones in the backward pass (:mod:`bnpbench.bnp.lean`).

    Args:
        n_in, n_out: n and n', the layer's width before and after.
        batch: N, the rows of a mini-batch.

    Returns:
        Operations.

    Source: not in the paper; equal to Algorithm 2 in its result.
    """
    return 8 * n_in * batch + 2 * n_out * batch + 9 * n_in + 2 * n_out


def bn_flops(n: int, batch: int) -> int:
    """BN on vectors of length n, as the paper counts it: ``32nN + 4n`` operations a step, forward and backward.

    Args:
        n: features.
        batch: N, the rows of a mini-batch.

    Returns:
        Operations.

    Source: section 3.4, where the textbook's formula of the backward pass is evaluated as it is written.
    """
    return 32 * n * batch + 4 * n


def usual_bn_flops(n: int, batch: int) -> int:
    """BN with the usual backward pass: ``15nN + 8n`` operations a step, forward and backward.

    Args:
        n: features.
        batch: N, the rows of a mini-batch.

    Returns:
        Operations.

    Source: by counting dx = (gamma / sigma)(dy - dbeta / N - x^ dgamma / N) with dbeta and dgamma.
    """
    return 15 * n * batch + 8 * n


@dataclass(frozen=True)
class LayerShape:
    """A tracked layer and the rows that one step gives it.

    Attributes:
        name: in the model.
        channels_in, channels_out: n and n' of a dense layer, c and c' of a convolution.
        taps: k^2, of a convolution; 1 for a dense layer.
        groups: of a convolution.
        rows_in: rows that the statistics are taken over: N, or N r s of the input.
        examples: N.
        positions: output positions of one example; 1 for a dense layer.
        bias: whether the layer has one.
    """

    name: str
    channels_in: int
    channels_out: int
    taps: int
    groups: int
    rows_in: int
    examples: int
    positions: int
    bias: bool

    @property
    def rows_out(self) -> int:
        """Rows of the output."""
        return self.examples * self.positions

    @property
    def columns(self) -> int:
        """Of a group's gradient, with the bias."""
        return self.channels_in // self.groups * self.taps + self.bias

    @property
    def products(self) -> int:
        """Operations of the layer's forward pass, and of the gradient at its input."""
        return 2 * self.rows_out * (self.columns - self.bias) * self.channels_out


def inverse_flops(n: int) -> int:
    """The inverse of a positive definite matrix of n rows by Cholesky's factorization: ``n^3``, of the leading order.

    Source: n^3 / 3 for the factor, and as much for its inverse and for the product of that with its transpose.
    """
    return n**3


def predicted(shape: LayerShape) -> int:
    """BNP on one layer, by :func:`conv_bnp_flops`.

    Without a bias the Sherman-Morrison form takes ``2c`` operations on vectors in place of step 5's ``2c'``.

    Args:
        shape: of a tracked layer, and the rows of a step.

    Returns:
        Operations.
    """
    flops = conv_bnp_flops(
        shape.channels_in, shape.channels_out, taps=shape.taps, rows=shape.rows_in, groups=shape.groups
    )
    return flops if shape.bias else flops + 2 * (shape.channels_in - shape.channels_out)


def tracked_shapes(bnp: Tracker[Any], model: nn.Module, example: Tensor) -> list[LayerShape]:
    """Shapes of the layers that a tracker has, in its order, found by a forward pass on ``meta`` tensors.

    Args:
        bnp: BNP, or another preconditioner, made for ``model``.
        model: on any device; its parameters, buffers and statistics stay as they are.
        example: one batch of input, on ``meta``.

    Returns:
        One shape per layer that the forward pass calls; several calls of a layer add up.
    """
    modules = dict(model.named_modules())
    layers = {name: Layer(name, modules[name]) for name in bnp.layers}
    calls: dict[str, list[Counts]] = {}

    def recorder(layer: Layer) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor], Tensor], None]:
        def record(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
            calls.setdefault(layer.name, []).append(layer.counts(input_of(args, kwargs), output))

        return record

    handles = [layer.module.register_forward_hook(recorder(layer), with_kwargs=True) for layer in layers.values()]
    tensors = {name: tensor.detach().to("meta") for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    try:
        with torch.no_grad():
            torch.func.functional_call(model, tensors, (example,))
    finally:
        for handle in handles:
            handle.remove()
    return [_shape(layers[name], calls[name]) for name in bnp.layers if name in calls]


def _shape(layer: Layer, calls: list[Counts]) -> LayerShape:
    rows, examples, outputs = (sum(counts) for counts in zip(*calls, strict=True))
    return LayerShape(
        name=layer.name,
        channels_in=layer.channels,
        channels_out=layer.weight.shape[0],
        taps=layer.taps,
        groups=layer.groups,
        rows_in=rows,
        examples=examples,
        positions=outputs // examples,
        bias=layer.module.bias is not None,
    )
