"""What is known of a layer that BNP preconditions: its shapes, its parameters, the arithmetic of one call."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp.algorithms import (
    at_least_float32,
    batch_statistics,
    conv_scale,
    dense_scale,
    precondition_conv_,
    precondition_dense_,
)
from bnpbench.errors import StatisticsError


class Counts(NamedTuple):
    """How much one or several calls of a layer saw.

    Attributes:
        rows: of the input, over which the statistics are taken: N, or N r s of a convolution's input map.
        examples: N.
        outputs: rows of the output, N times the output positions of an example.
    """

    rows: int
    examples: int
    outputs: int


class Terms(NamedTuple):
    """What steps 4 and 5 need of a layer.

    Attributes:
        mean: mu, (n,).
        inverse_variance: 1 / sigma~^2, (n,).
        scale: q^2, a number or a 0-d tensor.
    """

    mean: Tensor
    inverse_variance: Tensor
    scale: float | Tensor


class Layer:
    """A Linear or a convolution of a model.

    Args:
        name: in the model.
        module: the layer itself.

    Attributes:
        spatial_dims: of a convolution, 1 to 3; 0 of a Linear.
        channels: n, the features of a Linear's input or the channels of a convolution's.
        groups: of a convolution, else 1.
        taps: k^2, the elements of a convolution's kernel, else 1.
        inputs: columns of the weight as a matrix: n, or c k^2 of one group.
        outputs: rows of the weight: n' or c', of all groups.
        biased: whether it had a bias that is trained when this was made.
        columns: of a group's gradient [G_b | G_w]: ``inputs``, and one more where it is ``biased``.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.spatial_dims = 0
        self.groups = self.taps = 1
        if isinstance(module, nn.Linear):
            self.channels = module.in_features
        else:
            assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
            self.spatial_dims = len(module.kernel_size)
            self.channels, self.groups, self.taps = module.in_channels, module.groups, math.prod(module.kernel_size)
        self.inputs = self.channels // self.groups * self.taps
        bias = module.bias
        self.outputs, self.biased = len(module.weight), bias is not None and bias.requires_grad
        self.columns = self.inputs + self.biased
        self._parameters: dict[str, Any] = module._parameters  # faster than Module.__getattr__, once per call and step

    @property
    def weight(self) -> Tensor:
        """The module's weight.

        Raises:
            StatisticsError: it has become something that is computed (pruning, parametrization).
        """
        try:
            weight: Tensor = self._parameters["weight"]
        except KeyError:
            raise self._changed("weight") from None
        return weight

    @property
    def trained_bias(self) -> Tensor | None:
        """The bias; None without one, or where it is frozen. Raises as ``weight``."""
        try:
            bias: Tensor | None = self._parameters["bias"]
        except KeyError:
            raise self._changed("bias") from None
        return bias if bias is not None and bias.requires_grad else None

    @property
    def bias_grad(self) -> Tensor | None:
        """The gradient of :attr:`trained_bias`; None without one. Raises as ``weight``."""
        bias = self.trained_bias
        return None if bias is None else bias.grad

    def counts(self, inputs: Tensor, output: Tensor) -> Counts:
        """Rows, examples and output rows of a call.

        Raises:
            StatisticsError: a nested or sparse input.
        """
        if inputs.is_nested or inputs.layout is not torch.strided:
            kind = "nested" if inputs.is_nested else str(inputs.layout).removeprefix("torch.")
            raise StatisticsError(
                f"layer {self.name!r} was called with a {kind} tensor, of which BNP takes no statistics: give it a "
                "dense one, or leave the layer out with layers=lambda name, module: ..."
            )
        rows = inputs.numel() // self.channels
        if not self.spatial_dims:
            return Counts(rows, rows, rows)
        examples = inputs.shape[0] if self._batched(inputs) else 1
        return Counts(rows, examples, examples * math.prod(output.shape[-self.spatial_dims :]))

    def patches(self, inputs: Tensor) -> Tensor:
        """What the rows of the output are products of, in the order of the weight's columns, behind a one for the bias.

        A convolution's are its patches, as if it were a dense layer that is applied at each position (Grosse and
        Martens 2016).

        Args:
            inputs: of a call.

        Returns:
            h^ = (1, h), (groups, rows of the output, ``columns``), in float32 or wider; h where no bias is trained.
        """
        inputs = at_least_float32(inputs.detach())
        if not self.spatial_dims:
            rows = inputs.reshape(1, -1, self.channels)
        else:
            rows = self._unfolded(inputs if self._batched(inputs) else inputs.unsqueeze(0))
        return F.pad(rows, (1, 0), value=1.0) if self.biased else rows

    def positions(self, inputs: Tensor) -> Tensor:
        """The rows of the input that BNP takes its statistics over: (groups, rows, channels of a group)."""
        inputs = at_least_float32(inputs.detach())
        if self.spatial_dims:
            inputs = inputs.movedim(1 if self._batched(inputs) else 0, -1)
        return inputs.reshape(-1, self.groups, self.channels // self.groups).movedim(1, 0)

    def output_rows(self, grad: Tensor) -> Tensor:
        """The gradient at the output of a call as rows: (groups, rows, outputs of a group), in float32 or wider."""
        grad = at_least_float32(grad.detach())
        if self.spatial_dims:
            grad = grad.movedim(-1 - self.spatial_dims, -1)
        return grad.reshape(-1, self.groups, self.outputs // self.groups).movedim(1, 0)

    def gradients(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """G_w, (groups, outputs of a group, ``inputs``), and G_b, (groups, outputs of a group, 1).

        They are ``.grad`` itself where its precision and its order in memory allow it. Of a bias that is trained, but
        has no gradient, G_b is zero; None where the layer is not ``biased``.
        """
        weight_grad, bias_grad = self.weight.grad, self.bias_grad
        assert weight_grad is not None
        weight = weight_grad.to(dtype).reshape(self.groups, -1, self.inputs)
        if not self.biased:
            return weight, None
        bias = weight.new_zeros(self.outputs) if bias_grad is None else bias_grad.to(dtype)
        return weight, bias.view(self.groups, -1, 1)

    def put(self, weight: Tensor, bias: Tensor | None) -> None:
        """Write gradients of the shapes of :meth:`gradients` into ``.grad``; they may be views of that."""
        for grad, new in ((self.weight.grad, weight), (self.bias_grad if self.biased else None, bias)):
            if grad is None or new is None:
                continue
            if new.untyped_storage()._cdata == grad.untyped_storage()._cdata:
                if _same_places(new, grad.view(new.shape)):
                    continue
                new = new.clone()
            grad.copy_(new.reshape(grad.shape))

    def statistics(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Step 1: mean and variance of the input of a call, both (n,)."""
        if not self.spatial_dims:
            return batch_statistics(inputs)
        return batch_statistics(inputs if self._batched(inputs) else inputs.unsqueeze(0), channel_dim=1)

    def scale(self, counts: Counts) -> float | Tensor:
        """Step 3: q^2."""
        if self.spatial_dims:
            return conv_scale(self.inputs, counts.examples, counts.outputs / counts.examples)
        return dense_scale(self.channels, counts.rows)

    def precondition(self, terms: Terms) -> None:
        """Steps 4 and 5 on ``.grad``, in place; in the precision of the statistics where that is the higher one."""
        weight_grad, bias_grad = self.weight.grad, self.bias_grad
        assert weight_grad is not None
        mean, inverse_variance, scale = terms
        weight = weight_grad if weight_grad.dtype == mean.dtype else weight_grad.to(mean.dtype)
        bias = bias_grad if bias_grad is None or bias_grad.dtype == mean.dtype else bias_grad.to(mean.dtype)
        if self.spatial_dims:
            precondition_conv_(weight, bias, mean, inverse_variance, scale, self.groups)
        else:
            precondition_dense_(weight, bias, mean, inverse_variance, scale)
        if weight is not weight_grad:
            weight_grad.copy_(weight)
        if bias is not None and bias_grad is not None and bias is not bias_grad:
            bias_grad.copy_(bias)

    def _unfolded(self, inputs: Tensor) -> Tensor:
        """The patches of (N, c, r, ...): (groups, N times output positions, c / groups times taps)."""
        module: Any = self.module
        windows, dims, padding = inputs, self.spatial_dims, module._reversed_padding_repeated_twice
        if any(padding):
            windows = F.pad(inputs, padding, mode=module.padding_mode.replace("zeros", "constant"))
        for dim, (size, stride, dilation) in enumerate(
            zip(module.kernel_size, module.stride, module.dilation, strict=True), start=2
        ):
            windows = windows.unfold(dim, dilation * (size - 1) + 1, stride)[..., ::dilation]
        windows = windows.unflatten(1, (self.groups, -1))  # (N, groups, c / groups, positions ..., taps ...)
        order = [1, 0, *range(3, 3 + dims), 2, *range(3 + dims, 3 + 2 * dims)]
        found: Tensor = windows.permute(order).reshape(self.groups, -1, self.inputs)
        return found

    def _batched(self, inputs: Tensor) -> bool:
        return inputs.dim() == self.spatial_dims + 2

    def _changed(self, name: str) -> StatisticsError:
        return StatisticsError(
            f"layer {self.name!r} has no {name} of its own any more: it was pruned or parametrized after BNP was made. "
            "bnp.remove(), and make BNP afterwards, which leaves such layers alone"
        )


def _same_places(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage and shape have the same elements at the same places.

    ``is_set_to`` says that, too, but not on the meta device.
    """
    return bool(one.storage_offset() == other.storage_offset()) and one.stride() == other.stride()


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a Linear or a convolution was called with, by position or by name; for forward hooks."""
    inputs: Tensor = args[0] if args else kwargs["input"]
    return inputs


def autocasts(device_type: str) -> bool:
    """Whether autocast is on here for products on devices of this type."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> AbstractContextManager[object]:
    """Switches autocast off on devices of this type, where it is on."""
    return torch.autocast(device_type, enabled=False) if autocasts(device_type) else nullcontext()
