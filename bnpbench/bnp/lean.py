"""The lean form of BNP on a dense layer: the activations are centred and scaled instead of the gradient.

Steps 4 and 5 are linear in the gradient, and that is a product with the activations, G_w = dY^T H, G_b = dY^T e. So

    Z = (H - e mu^T) / (q^2 sigma~^2),   G_w = dY^T Z,   G_b = dY^T (e / q^2 - Z mu)

are the preconditioned gradients at once. Where dY^T Z takes the place of dY^T H in the backward pass, no pass over the
n' x n gradient is left, which is cheaper than the plain form while N is small beside n'
(:func:`bnpbench.bnp.costs.lean_bnp_flops`). Not in the paper; the same in exact arithmetic.

The statistics must then be final when the backward pass comes to the first such layer, before its gradient exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnpbench.bnp.algorithms import in_memory
from bnpbench.bnp.layer import Layer, Terms, autocasts
from bnpbench.bnp.running import Running
from bnpbench.errors import StatisticsError

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Linear(nn.Linear):
    """A dense layer whose product with its input can be given another gradient. Without that it is torch's."""

    product: Product = staticmethod(F.linear)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, torch's name
        return self.product(input, self.weight, self.bias)


class LeanState:
    """What the lean form has done since the last step. Empty where no layer is in that form.

    Attributes:
        terms: of all layers on a device whose statistics are final; None for one that had no rows then.
        used: layers whose gradients came preconditioned out of the backward pass.
        plain: names of layers that were called in a way the form does not cover.
    """

    def __init__(self) -> None:
        self.terms: dict[Layer, Terms | None] = {}
        self.used: set[Layer] = set()
        self.plain: set[str] = set()
        self._stepped = False  # whether a step has taken some of the terms

    def use(self, layer: Layer, finish: Callable[[Layer], Mapping[Layer, Terms | None]]) -> Terms:
        """The terms of a layer whose gradient is computed now.

        Args:
            layer: in the lean form.
            finish: folds the rows of all layers on the layer's device into the running values. Called once a step, by
                the first layer whose gradient is computed.
        """
        if layer not in self.terms:
            self.terms.update(finish(layer))
        terms = found(layer, self.terms[layer])
        self.used.add(layer)
        return terms

    def take(self, layers: Iterable[Layer]) -> dict[Layer, Terms | None]:
        """The final terms of ``layers``, for the step that uses them; each is given once."""
        if not self.terms:
            return {}
        taken = {layer: self.terms.pop(layer) for layer in layers if layer in self.terms}
        self._stepped |= bool(taken)
        return taken

    def forget(self, layers: Iterable[Layer]) -> None:
        """A step has used the gradients of ``layers``."""
        if not (self.terms or self.used or self.plain):
            return
        for layer in layers:
            self.terms.pop(layer, None)
            self.used.discard(layer)
            self.plain.discard(layer.name)
        self._stepped &= bool(self.terms)

    def begin_anew(self) -> None:
        """A forward pass begins when statistics are final already: forget them.

        Raises:
            StatisticsError: no step has used the gradients that were preconditioned by them.
        """
        if self.used and not self._stepped:
            raise StatisticsError(
                f"layer {min(layer.name for layer in self.used)!r} of the lean form is called again before "
                "precondition() was: micro-batches, and gradients that are dropped, need BNP without lean="
            )
        self.terms.clear()
        self.used.clear()
        self.plain.clear()
        self._stepped = False


class LeanProduct:
    """``product`` of a :class:`Linear` under BNP. Copies and pickles of the module carry torch's instead.

    It is torch's too outside training, under autocast, with a frozen bias, in another precision than the statistics',
    on an input of more than two dimensions, and inside a compiled module or a transform of torch.func.

    Args:
        layer: of the module.
        state: of the lean form.
        running: the running values, whose precision the input must have.
        finish: see :meth:`LeanState.use`.
    """

    def __init__(
        self,
        layer: Layer,
        state: LeanState,
        running: Running,
        finish: Callable[[Layer], Mapping[Layer, Terms | None]],
    ) -> None:
        self._layer, self._state, self._running, self._finish = layer, state, running, finish

    def __call__(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        trains = self._layer.module.training and torch.is_grad_enabled() and weight.requires_grad
        biased = bias is not None and bias.requires_grad  # else the formula is that of layers without
        if not trains or torch._C._functorch.peek_interpreter_stack() is not None:
            return F.linear(inputs, weight, bias)
        strange = inputs.dim() != 2 or inputs.dtype is not self._running.mean[self._layer.name].dtype
        if strange or not biased or autocasts(inputs.device.type) or torch.compiler.is_dynamo_compiling():
            self._state.plain.add(self._layer.name)
            return F.linear(inputs, weight, bias)
        output: Tensor = _Lean.apply(inputs, weight, bias, self)
        return output

    def terms(self) -> Terms:
        """Of this step, in its backward pass."""
        return self._state.use(self._layer, self._finish)

    def __deepcopy__(self, _memo: dict[int, Any]) -> Product:
        return _plain()

    def __reduce__(self) -> tuple[Callable[[], Product], tuple[()]]:
        return _plain, ()


def found(layer: Layer, terms: Terms | None) -> Terms:
    """Final terms of a layer.

    Raises:
        StatisticsError: it has none.
    """
    if terms is None:
        raise StatisticsError(
            f"layer {layer.name!r} had no rows when the statistics of this step became final, at the first gradient of "
            "a layer in the lean form: it was called later (reentrant checkpointing), or a step has used its rows"
        )
    return terms


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
        if not ctx.needs_input_grad[1]:  # torch.autograd.grad with respect to the inputs: no step
            return grad.mm(weight), None, None, None
        mean, inverse_variance, scale = ctx.product.terms()
        factor, transposed = 1.0 / scale, grad.t()
        columns = inverse_variance * factor
        if len(inputs) > 1:  # beside a single row, what is computed anew is computed once
            mean, columns = in_memory(mean), in_memory(columns)
        centred = (inputs - mean) * columns  # Z
        input_grad = grad.mm(weight) if ctx.needs_input_grad[0] else None
        weight_grad, bias_grad = transposed.mm(centred), transposed.mv(factor - centred.mv(mean))
        return input_grad, weight_grad, bias_grad, None
