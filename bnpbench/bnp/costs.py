"""What BNP and BN cost per step, by the paper's formulas, and the shapes to put into them.

An addition, subtraction, multiplication or division of numbers is one operation, so that a dot product of length n is
2n; maximum, square root and reciprocal count nothing, nor does what gives a single number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bnpbench.bnp.hook import input_of
from bnpbench.bnp.preconditioner import BNP


def bnp_flops(n_in: int, n_out: int, batch: int) -> int:
    """Proposition 6: ``4nN + 6nn' + 2n' + 8n`` for a dense layer n -> n' and N rows."""
    return conv_bnp_flops(n_in, n_out, taps=1, rows=batch)


def conv_bnp_flops(channels_in: int, channels_out: int, *, taps: int, rows: int, groups: int = 1) -> int:
    """Algorithm 3, counted as Proposition 6 counts: ``4cNrs + 6(c/groups)k^2c' + 2c' + 8c``.

    Args:
        channels_in, channels_out: c and c'.
        taps: k^2, of the kernel.
        rows: N r s, examples times *input* positions.
        groups: each is a layer of its own.
    """
    weights = channels_in // groups * taps * channels_out
    return 4 * channels_in * rows + 6 * weights + 2 * channels_out + 8 * channels_in


def lean_bnp_flops(n_in: int, n_out: int, batch: int) -> int:
    """``8nN + 2n'N + 9n + 2n'``: BNP where the centred, scaled activations replace the raw ones in the backward pass.

    Not in the paper; equal to Algorithm 2 in its result.
    """
    return 8 * n_in * batch + 2 * n_out * batch + 9 * n_in + 2 * n_out


def bn_flops(n: int, batch: int) -> int:
    """BN on vectors of length n, as the paper counts it: ``32nN + 4n`` (its backward formula evaluated literally)."""
    return 32 * n * batch + 4 * n


def usual_bn_flops(n: int, batch: int) -> int:
    """BN with the usual backward, dx = (gamma / sigma)(dy - dbeta / N - x^ dgamma / N): ``15nN + 8n``."""
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


def predicted(shape: LayerShape) -> int:
    """Operations of BNP on one layer: Proposition 6 or its like for convolutions.

    Without a bias the Sherman-Morrison form takes ``2c`` operations on vectors in place of step 5's ``2c'``.
    """
    flops = conv_bnp_flops(
        shape.channels_in, shape.channels_out, taps=shape.taps, rows=shape.rows_in, groups=shape.groups
    )
    return flops if shape.bias else flops + 2 * (shape.channels_in - shape.channels_out)


def tracked_shapes(bnp: BNP, model: nn.Module, example: Tensor) -> list[LayerShape]:
    """Shapes of the layers that ``bnp`` tracks, in its order, found by a forward pass on ``meta`` tensors.

    Args:
        bnp: a BNP made for ``model``.
        model: on any device; its parameters, buffers and statistics stay as they are.
        example: one batch of input, on ``meta``.

    Returns:
        One shape per layer that the forward pass calls; several calls of a layer add up.
    """
    calls: dict[str, list[tuple[int, int, int]]] = {}

    def recorder(name: str) -> Any:
        def record(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
            calls.setdefault(name, []).append(_rows(module, input_of(args, kwargs), output))

        return record

    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_hook(recorder(name), with_kwargs=True) for name in bnp.layers]
    tensors = {name: tensor.detach().to("meta") for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    try:
        with torch.no_grad():
            torch.func.functional_call(model, tensors, (example,))
    finally:
        for handle in handles:
            handle.remove()
    return [_shape(name, modules[name], calls[name]) for name in bnp.layers if name in calls]


def _rows(module: nn.Module, inputs: Tensor, output: Tensor) -> tuple[int, int, int]:
    """Rows of the input, examples, rows of the output."""
    if isinstance(module, nn.Linear):
        rows = inputs.numel() // module.in_features
        return rows, rows, rows
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    outputs = output.numel() // module.out_channels
    return inputs.numel() // module.in_channels, outputs // math.prod(output.shape[-len(module.kernel_size) :]), outputs


def _shape(name: str, module: nn.Module, calls: list[tuple[int, int, int]]) -> LayerShape:
    rows, examples, outputs = (sum(counts) for counts in zip(*calls, strict=True))
    bias, positions = module.bias is not None, outputs // examples
    if isinstance(module, nn.Linear):
        return LayerShape(name, module.in_features, module.out_features, 1, 1, rows, examples, positions, bias)
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    channels, taps = (module.in_channels, module.out_channels), math.prod(module.kernel_size)
    return LayerShape(name, *channels, taps, module.groups, rows, examples, positions, bias)
