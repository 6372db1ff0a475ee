"""The lean form of BNP on a dense layer: the activations are centred and scaled instead of the gradient.

Steps 4 and 5 are linear in the gradient, and that is a product with the activations, G_w = dY^T H, G_b = dY^T e. So

    Z = (H - e mu^T) / (q^2 sigma~^2),   G_w = dY^T Z,   G_b = dY^T (e / q^2 - Z mu)

are the preconditioned gradients at once. Where dY^T Z takes the place of dY^T H in the backward pass, no pass over the
n' x n gradient is left, which is cheaper than the plain form while N is small beside n'
(:func:`bnpbench.bnp.costs.lean_bnp_flops`). Not in the paper; the same in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnpbench.bnp.pool import Layer
from bnpbench.bnp.running import Terms, autocasts

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Linear(nn.Linear):
    """A dense layer whose product with its input can be given another gradient. Without that it is torch's."""

    product: Product = staticmethod(F.linear)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, torch's name
        return self.product(input, self.weight, self.bias)


class LeanProduct:
    """``product`` of a :class:`Linear` under BNP. Copies and pickles of the module carry torch's instead.

    Outside training, under autocast, with a frozen bias, in another precision than the
    statistics', inside a compiled module or a transform of
    torch.func, and on an input of more than two dimensions it is torch's too.

    Args:
        layer: of the module.
        finish: makes the statistics of this step final and gives the layer's; called in the backward pass.
    """

    def __init__(self, layer: Layer, finish: Callable[[Layer], Terms]) -> None:
        self.layer, self.finish = layer, finish

    def __call__(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        trains = self.layer.module.training and torch.is_grad_enabled() and weight.requires_grad
        biased = bias is not None and bias.requires_grad  # else the formula is that of layers without
        if not trains or torch._C._functorch.peek_interpreter_stack() is not None:
            return F.linear(inputs, weight, bias)
        strange = inputs.dim() != 2 or inputs.dtype is not self.layer.running_mean.dtype
        if strange or not biased or autocasts(inputs.device.type) or torch.compiler.is_dynamo_compiling():
            self.layer.plain = True
            return F.linear(inputs, weight, bias)
        output: Tensor = _Lean.apply(inputs, weight, bias, self)
        return output

    def __deepcopy__(self, _memo: dict[int, Any]) -> Product:
        return _plain()

    def __reduce__(self) -> tuple[Callable[[], Product], tuple[()]]:
        return _plain, ()


def _plain() -> Product:
    return F.linear


class _Lean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, product: LeanProduct) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.product = product
        return F.linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        inputs, weight = ctx.saved_tensors
        layer: Layer = ctx.product.layer
        if not ctx.needs_input_grad[1]:  # torch.autograd.grad with respect to the inputs: no step
            return grad.mm(weight), None, None, None
        mean, inverse_variance, scale = ctx.product.finish(layer)
        layer.preconditioned = True
        factor, transposed = 1.0 / scale, grad.t()
        centred = (inputs - mean) * (inverse_variance * factor)  # Z
        input_grad = grad.mm(weight) if ctx.needs_input_grad[0] else None
        weight_grad, bias_grad = transposed.mm(centred), transposed.mv(factor - centred.mv(mean))
        return input_grad, weight_grad, bias_grad, None
