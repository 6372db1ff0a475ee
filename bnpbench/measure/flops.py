"""Floating-point operations, counted by running code on tensors - ``meta`` ones, if only the number is wanted.

The rules are the paper's: an addition, subtraction, multiplication or division is one operation per element, a
multiply-add two; comparison, maximum, square root and reciprocal count nothing, nor does an operator whose result is a
single number (0-d). Multiplying a vector or a matrix by a plain number that an operator takes along (``alpha``) counts
nothing either. Moving data - views, copies, gathers, fills, random numbers - is no arithmetic.

Torch's FlopCounterMode knows matrix products, convolutions and attention; the formulas here are for the elementwise and
reducing operators that it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from bnpbench.bnp.costs import LayerShape

Formula = Callable[..., int]
Shape = Any  # torch passes shapes for tensors, nested as the arguments are


def count_plain_bnp(shape: LayerShape) -> int:
    """Operations of Algorithm 2 or 3 on one layer, counted by running it literally. Equals ``costs.predicted``."""
    group_in, group_out = shape.channels_in // shape.groups, shape.channels_out // shape.groups
    with torch.device("meta"), FlopCount() as flops:
        _plain_bnp(shape.rows_in, group_in, group_out, shape.taps, shape.bias)
    return flops.total * shape.groups  # each group is a layer of its own


def count_plain_bn(n: int, rows: int, passes_on: bool = True) -> int:
    """Operations of a plain BN on n features, forward and, by autograd, backward: 7nN + 19nN and some n.

    On the network's input, which asks for no gradient (``passes_on`` false), the backward pass is 3nN.
    """
    with torch.device("meta"), FlopCount() as flops:
        _plain_bn(n, rows, passes_on)
    return flops.total


class FlopCount:
    """Counts the floating-point operations of what runs inside ``with``.

    Attributes:
        total: operations.
        by_operator: operations of each operator, such as ``aten.mul``.
        uncounted: how often each operator ran that there is no formula for; operators that only move data are left out.
    """

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False, custom_mapping=_FORMULAS)
        self._watch = _Watch()

    @property
    def total(self) -> int:
        return int(self._counter.get_total_flops())

    @property
    def by_operator(self) -> dict[str, int]:
        counts = self._counter.get_flop_counts().get("Global", {})
        return {str(operator): int(flops) for operator, flops in counts.items() if flops}

    @property
    def uncounted(self) -> dict[str, int]:
        return dict(self._watch.calls)

    def __enter__(self) -> FlopCount:
        # The watch goes below the counter, so that it sees what composite operators are made of.
        self._watch.__enter__()  # type: ignore[no-untyped-call]
        self._counter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._counter.__exit__(kind, error, trace)
        self._watch.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]


class _Watch(TorchDispatchMode):
    """Notes the operators that have no formula."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        packet = func._overloadpacket
        if packet not in _FORMULAS and packet not in flop_registry and not _only_moves(func):
            self.calls[str(packet)] += 1
        return func(*args, **(kwargs or {}))


def _plain_bnp(rows: int, n: int, n_out: int, taps: int, bias: bool) -> None:
    """Algorithms 2 and 3 as the paper writes them, for one group of one layer."""
    h, g_w, g_b = torch.empty(rows, n), torch.empty(n_out, n * taps), torch.empty(n_out)
    mean, variance = torch.zeros(n), torch.ones(n)
    rho, eps1, eps2, inverse_scale = 0.99, 1e-2, 1e-4, 0.5
    batch_mean = h.mean(0)  # 1
    batch_variance = (h - batch_mean).pow(2).mean(0)
    mean = rho * mean + (1 - rho) * batch_mean  # 2
    variance = rho * variance + (1 - rho) * batch_variance
    damped = variance + eps1 * variance.max() + eps2  # 3
    over_taps, mean_over_taps = damped.repeat(taps), mean.repeat(taps)
    if bias:
        g_w = (g_w - g_b[:, None] * mean_over_taps) * inverse_scale / over_taps  # 4
        g_b = g_b * inverse_scale - g_w.mv(mean_over_taps)  # 5
    else:
        g_w = g_w * inverse_scale / over_taps
        direction = mean / damped
        direction = direction / (1 + taps * mean.dot(direction))
        g_w = g_w - g_w.mv(mean_over_taps)[:, None] * direction.repeat(taps)


def _plain_bn(n: int, rows: int, passes_on: bool) -> None:
    """BN as its definition reads, and its backward as autograd derives it."""
    x = torch.empty(rows, n, requires_grad=passes_on)
    gamma, beta = torch.ones(n, requires_grad=True), torch.zeros(n, requires_grad=True)
    centred = x - x.mean(0)
    variance = (centred * centred).mean(0)
    y = centred / (variance + 1e-5).sqrt() * gamma + beta
    y.backward(torch.empty(rows, n))


def _elementwise(per_element: int) -> Formula:
    """So many operations for each element of the result."""

    def formula(*args: object, out_shape: Shape = None, **kwargs: object) -> int:
        return per_element * (prod(out_shape) if len(out_shape) else 0)

    return formula


def _reduction(per_element: int) -> Formula:
    """So many operations for each element that goes in."""

    def formula(first: Shape, *args: object, out_shape: Shape = None, **kwargs: object) -> int:
        return per_element * prod(first) if len(out_shape) else 0

    return formula


def _per_input(per_element: int) -> Formula:
    """So many operations for each element of the first argument, whatever comes out."""

    def formula(first: Shape, *args: object, out_shape: Shape = None, **kwargs: object) -> int:
        return per_element * prod(first)

    return formula


def _each(per_element: int) -> Formula:
    """So many operations for each element of the tensors of a list (foreach operators)."""

    def formula(first: list[Shape], *args: object, out_shape: Shape = None, **kwargs: object) -> int:
        return per_element * sum(prod(shape) for shape in first)

    return formula


def _matrix_vector(out: Shape, matrix: Shape, vector: Shape, *, out_shape: Shape = None, **kwargs: object) -> int:
    return 2 * prod(matrix) + prod(out)


def _batched_products(
    out: Shape, first: Shape, second: Shape, *, beta: float = 1, alpha: float = 1, out_shape: Shape = None
) -> int:
    return int(2 * prod(first) * second[-1] + (0 if beta == 1 else prod(out)))


def _outer(out: Shape, *vectors: Shape, beta: float = 1, alpha: float = 1, out_shape: Shape = None) -> int:
    return (2 if beta == 1 else 3) * prod(out)


def _cholesky(matrix: Shape, *args: object, out_shape: Shape = None, **kwargs: object) -> int:
    """n^3 / 3 of the leading order: the terms of n^2 are left out, as in every count of it."""
    return int(prod(matrix) * matrix[-1] // 3)


def _cholesky_inverse(factor: Shape, *args: object, out_shape: Shape = None, **kwargs: object) -> int:
    """2 n^3 / 3: the triangle's inverse, and its product with its transpose."""
    return int(2 * prod(factor) * factor[-1] // 3)


def _gelu(inputs: Shape, approximate: str = "none", *, out_shape: Shape = None, **kwargs: object) -> int:
    """x (1 + erf(x / sqrt 2)) / 2: erf counts one, as exp does, and so does each of the four others.

    By tanh: that, x + c x^3 (4), times a number, plus 1, times x, halved.
    """
    return (9 if approximate == "tanh" else 5) * prod(inputs)


def _gelu_backward(
    grad: Shape, inputs: Shape, approximate: str = "none", *, out_shape: Shape = None, **kwargs: object
) -> int:
    """Phi(x) (4) + x phi(x) (4 and the product), their sum, times the gradient.

    By tanh, u = b (x + c x^3) and t = tanh(u) (6): (1 + t) / 2 (2), x / 2 (1), 1 - t^2 (2), u' (3, with x^2 at hand),
    the product of the last three (2), the sum, times the gradient.
    """
    return (18 if approximate == "tanh" else 11) * prod(inputs)


def _attention(query: Shape, key: Shape, value: Shape, *args: object, out_shape: Shape = None, **kwargs: object) -> int:
    """The two products, and the softmax of the scores as it counts alone; the scale is a number taken along.

    A causal mask is no less: the operators of a composed attention compute every score, too.
    """
    scores = prod(query[:-1]) * key[-2]
    return int(scores * (2 * query[-1] + 4 + 2 * value[-1]))


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *args: object, out_shape: Shape = None, **kwargs: object
) -> int:
    """Five products, for the kernels compute the scores again (4 a score) instead of keeping them; softmax's own."""
    scores = prod(query[:-1]) * key[-2]
    return int(scores * (6 * query[-1] + 4 * value[-1] + 8))


def _free(*args: object, out_shape: Shape = None, **kwargs: object) -> int:
    return 0


def _fused_sgd(
    params: list[Shape], *args: object, weight_decay: float, momentum: float, out_shape: Shape = None, **kwargs: object
) -> int:
    return (2 + 2 * bool(weight_decay) + 2 * bool(momentum)) * sum(prod(shape) for shape in params)


def _convolution_backward(
    grad: Shape,
    inputs: Shape,
    weight: Shape,
    _bias: Shape,
    _stride: Shape,
    _padding: Shape,
    _dilation: Shape,
    transposed: bool,
    _output_padding: Shape,
    _groups: int,
    output_mask: list[bool],
    *,
    out_shape: Shape = None,
) -> int:
    """The gradients of the input and of the weight take each as much as the output. (Torch's own forgets groups.)"""
    positions = (inputs if transposed else grad)[2:]
    return int(2 * grad[0] * prod(positions) * prod(weight) * sum(output_mask[:2]))


def _batch_norm_backward(
    grad: Shape,
    _input: Shape,
    _weight: Shape,
    _mean: Shape,
    _variance: Shape,
    _save_mean: Shape,
    _save_variance: Shape,
    of_batch: bool,
    *args: object,
    out_shape: Shape = None,
    **kwargs: object,
) -> int:
    """Through fixed statistics the gradient is that of a factor and a summand."""
    return (9 if of_batch else 5) * prod(grad)


def _only_moves(operator: torch._ops.OpOverload) -> bool:
    """Views, copies, gathers, fills and factories."""
    name: str = operator._schema.name.removeprefix("aten::").removesuffix("_")
    makes = not any("Tensor" in str(argument.type) for argument in operator._schema.arguments)
    return operator.is_view or makes or name in _MOVING or name.startswith("new_") or name.endswith("_like")


def _table() -> dict[Any, Formula]:
    # Batch statistics: sum; centre, square, add. BN's kernels then fold four vectors into a factor and a summand.
    groups: list[tuple[Formula, str]] = [
        (_elementwise(1), "add sub rsub mul div neg pow square exp log tanh sigmoid tanh_backward sigmoid_backward"),
        (_elementwise(1), "native_dropout_backward _adaptive_avg_pool2d_backward avg_pool2d_backward"),
        (_elementwise(2), "addcmul addcdiv silu"),
        (_elementwise(3), "lerp"),
        (_elementwise(4), "_log_softmax _softmax _log_softmax_backward_data _softmax_backward_data"),
        (_outer, "addr"),
        (_matrix_vector, "addmv"),
        (_reduction(1), "sum mean cumsum"),
        (_reduction(2), "mv dot linalg_vector_norm"),
        (_elementwise(6), "silu_backward"),  # g s (1 + x (1 - s)) of s = sigmoid(x)
        (_gelu, "gelu"),
        (_gelu_backward, "gelu_backward"),
        (_reduction(4), "var var_mean std std_mean"),  # the sum; centre, square, add. Roots count nothing
        (_attention, " ".join(_ATTENTION)),
        (_attention_backward, " ".join(f"{name}_backward" for name in _ATTENTION)),
        (_per_input(1), "native_dropout _adaptive_avg_pool2d avg_pool2d"),
        (_per_input(2), "_native_batch_norm_legit_no_training"),
        (_per_input(4), "batch_norm_update_stats"),
        (_per_input(6), "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm"),
        (_per_input(9), "cudnn_batch_norm_backward"),
        (_batch_norm_backward, "native_batch_norm_backward batch_norm_backward"),
        (_convolution_backward, "convolution_backward"),
        (_per_input(8), "native_layer_norm native_group_norm"),
        (_per_input(11), "native_layer_norm_backward native_group_norm_backward"),
        (_each(1), "_foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_neg _foreach_pow"),
        (_each(2), "_foreach_addcmul _foreach_addcdiv"),
        (_each(3), "_foreach_lerp"),
        (_fused_sgd, "_fused_sgd"),
        (_each(12), "_fused_adam _fused_adamw"),
        (_batched_products, "baddbmm"),
        (_cholesky, "linalg_cholesky_ex"),
        (_cholesky_inverse, "cholesky_inverse"),
        (_free, _FREE),
    ]
    aten = torch.ops.aten
    variants = ((formula, name + end) for formula, names in groups for name in names.split() for end in ("", "_"))
    return {getattr(aten, name): formula for formula, name in variants if hasattr(aten, name)}


_ATTENTION = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

# Comparisons, selections, roots and reciprocals; the loss picks one number of each row.
_FREE = """
    abs sign relu threshold threshold_backward clamp clamp_min clamp_max maximum minimum where max min amax amin aminmax
    argmax argmin any all eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not isnan
    isfinite sqrt rsqrt reciprocal ceil floor round segment_reduce max_pool2d_with_indices
    max_pool2d_with_indices_backward nll_loss_forward nll_loss_backward _foreach_sqrt _foreach_reciprocal
    _foreach_maximum topk sort
"""
_MOVES = """
    clone copy _to_copy cat stack index index_put index_select gather scatter scatter_add embedding repeat
    repeat_interleave fill zero masked_fill flip roll constant_pad_nd slice_backward select_backward slice_scatter
    select_scatter index_copy tril triu normal uniform bernoulli random exponential resize set lift_fresh _reshape_copy
    reflection_pad2d _foreach_copy _foreach_zero _local_scalar_dense is_pinned _unsafe_view _unsafe_index
"""
_MOVING = frozenset(_MOVES.split())
_FORMULAS = _table()
PRODUCTS = {torch.ops.aten.convolution_backward: _convolution_backward}
"""For a FlopCounterMode that counts matrix products and convolutions alone."""


def batch_norm_sizes(model: torch.nn.Module, batch: torch.Tensor) -> list[tuple[int, int, bool]]:
    """Features and rows of each batch normalization in one pass, and whether it passes a gradient on.

    Args:
        model: on any device.
        batch: one batch of input, on the same.
    """
    sizes: list[tuple[int, int, bool]] = []

    def note(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        features = inputs[0].shape[1]
        sizes.append((features, inputs[0].numel() // features, inputs[0].requires_grad))

    layers = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    model(batch)
    for hook in hooks:
        hook.remove()
    return sizes
