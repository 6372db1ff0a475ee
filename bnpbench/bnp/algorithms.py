"""Algorithms 2 and 3 of the paper as functions of tensors, with its step numbers.

One step of BNP on a layer, given its mini-batch input ``H`` and the gradients ``G_w``, ``G_b`` of the mean loss:

    1. mean and population variance of each input feature (dense) or channel (convolution)   batch_statistics
    2. running values: mu <- rho mu + (1 - rho) mu_H, and the same for sigma^2               update_running
    3. damping and scale: sigma~^2 = sigma^2 + eps1 max(sigma^2) + eps2, and q^2             damped_variance, *_scale
    4. G_w <- (G_w - G_b mu^T) / (q^2 sigma~^2), column by column                            precondition_*
    5. G_b <- G_b / q^2 - G_w mu, with the new G_w and the old G_b                           precondition_*

so that ``[G_b; G_w^T] <- (1/q^2) P P^T [G_b; G_w^T]``, ``P = [[1, -mu^T], [0, I]] diag(1, 1/sigma~)``.

Nothing here reads a value back to the host, keeps state or looks at a module: the functions serve eager steps, steps
that are captured into a graph, and steps that are traced and compiled. Non-finite numbers pass through unchanged: a NaN
or an infinity in ``H`` is in the running values and in the preconditioned gradient afterwards.

Source: Lange, Helfrich, Ye, "Batch Normalization Preconditioning for Neural Network Training", JMLR 23(72), 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# One pass of the CPU kernel below adds up a column in the width of its input. Up to this many rows the error of a
# float32 mean stays far below what a variance of 1e-8 times the squared mean would notice; longer inputs go in pieces.
_ROWS_PER_PASS = 8192

# A compiled step adds up so many rows at a time. Generated code goes down a column, and over all rows at once each
# element would lie in another page of memory.
_ROWS_PER_BLOCK = 8

# From so many examples and elements on, each position of a convolution's input is first taken as a column of its own.
_EXAMPLES_FOR_COLUMNS, _ELEMENTS_FOR_COLUMNS = 16, 2**16


def batch_statistics(
    activations: Tensor, *, channel_dim: int = -1, running_mean: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Step 1: mean and population variance of each channel, over all other dimensions.

    Args:
        activations: the layer's input. Dense: (N, n) or (..., n). Convolution: (N, c, r, ...) with ``channel_dim=1``.
        channel_dim: the dimension of features or channels, 1 or -1.
        running_mean: (n,), the running mean *before* this step. Where there is a single row, a variance has no meaning,
            and sigma_H^2 = (h - running_mean)^2 is returned if this is given (the paper's rule for N = 1).

    Returns:
        Mean and variance, both (n,), in float32 or wider whatever the dtype of the input.
    """
    activations = at_least_float32(activations.detach())
    channels = activations.shape[channel_dim]
    if activations.numel() == channels:  # one row
        mean = activations.reshape(channels).clone()
        return mean, torch.zeros_like(mean) if running_mean is None else (mean - running_mean).square()
    if activations.dim() == 2:
        return _statistics_of_rows(activations)
    if channel_dim != -1 and activations.is_contiguous():
        return _statistics_of_planes(activations)
    return _statistics_of_rows(activations.movedim(channel_dim, -1).reshape(-1, channels))


def pool_statistics(means: Tensor, variances: Tensor, rows: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of several sets of rows taken together, from theirs (Chan, Golub, LeVeque 1979).

    Args:
        means, variances: (k, n), one line per set.
        rows: how many rows each set has, k numbers.

    Returns:
        Mean and population variance, both (n,). Nothing cancels: only differences of means are squared.
    """
    # Counts that the host knows are filled in on the device, because a copy to it cannot be captured in a CUDA graph.
    counts = (rows if isinstance(rows, Tensor) else torch.cat([means.new_full((1,), n) for n in rows])).to(means.dtype)
    shares = (counts / counts.sum()).unsqueeze(1)
    mean = (shares * means).sum(0)
    return mean, (shares * (variances + (means - mean).square())).sum(0)


def update_running(running: Tensor, batch: Tensor, rho: float) -> Tensor:
    """Step 2, in place: ``running <- rho running + (1 - rho) batch``, of means and of variances alike.

    The running mean starts at 0 and the running variance at 1; there is no correction of that bias.

    Args:
        running: running means or variances, (n,); overwritten.
        batch: those of the mini-batch, (n,).
        rho: weight of the past, from 0 to 1.

    Returns:
        ``running``.
    """
    return running.lerp_(batch, 1.0 - rho)


def damped_variance(variance: Tensor, eps1: float = 1e-2, eps2: float = 1e-4, groups: int = 1) -> Tensor:
    """Step 3: ``sigma~^2 = sigma^2 + eps1 max(sigma^2) + eps2``.

    Args:
        variance: sigma^2, (n,).
        eps1: damping relative to the largest variance.
        eps2: absolute damping.
        groups: of a convolution. Each is a layer of its own, with its own maximum; ``groups`` divides n.

    Returns:
        sigma~^2, (n,).
    """
    by_group = variance.reshape(groups, -1)
    return torch.flatten(by_group + (by_group.amax(1, keepdim=True) * eps1 + eps2))


def dense_scale(features: int | Tensor, batch_size: float | Tensor) -> float | Tensor:
    """Step 3: ``q^2 = max(n / N, 1)`` of a dense layer.

    Args:
        features: n, the width of the layer's input.
        batch_size: N, the number of rows, pooled over calls, micro-batches and ranks.

    Returns:
        q^2; a tensor where an argument is one.
    """
    return _larger(features / batch_size, 1.0)


def conv_scale(inputs: int | Tensor, batch_size: float | Tensor, positions: float | Tensor) -> float | Tensor:
    """Step 3: ``q^2 = max(c k^2 / N, sqrt(positions))`` of a convolution.

    Args:
        inputs: c k^2, the input channels of one group times the taps of the kernel.
        batch_size: N, the number of examples, pooled.
        positions: *output* positions of one example, the rows of the convolution as a matrix (r s where it is "same").

    Returns:
        q^2; a tensor where an argument is one.
    """
    return _larger(inputs / batch_size, positions**0.5)


def precondition_dense(
    weight_grad: Tensor, bias_grad: Tensor | None, mean: Tensor, damped_variance: Tensor, scale: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Steps 4 and 5 of Algorithm 2: (1/q^2) P P^T times the gradient, as new tensors.

    A layer without bias has no column of ones in its Hessian. There the inverse of diag(sigma~^2) + mu mu^T takes the
    place of P P^T (Sherman-Morrison): with T = G_w / sigma~^2 by columns and a = mu / sigma~^2,
    G_w <- (T - (T mu) a^T / (1 + mu^T a)) / q^2. The paper is silent here; this is our reading.

    Args:
        weight_grad: G_w, (n', n).
        bias_grad: G_b, (n'), or None.
        mean: mu, (n,).
        damped_variance: sigma~^2, (n,).
        scale: q^2, a number or a 0-d tensor.

    Returns:
        The new G_w and G_b.
    """
    copy = None if bias_grad is None else bias_grad.clone()
    return precondition_dense_(weight_grad.clone(), copy, mean, damped_variance.reciprocal(), scale)


def precondition_conv(
    weight_grad: Tensor,
    bias_grad: Tensor | None,
    mean: Tensor,
    damped_variance: Tensor,
    scale: float | Tensor,
    groups: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """Steps 4 and 5 of Algorithm 3, as new tensors: every tap of a channel shares its mean and variance.

    Args:
        weight_grad: G_w, (c', c / groups, k, ...).
        bias_grad: G_b, (c'), or None (see :func:`precondition_dense`).
        mean: mu, (c,), over all groups.
        damped_variance: sigma~^2, (c,), damped group by group.
        scale: q^2, a number or a 0-d tensor.
        groups: each is a layer of its own.

    Returns:
        The new G_w and G_b.
    """
    copy = None if bias_grad is None else bias_grad.clone()
    weight_grad = weight_grad.clone()
    return precondition_conv_(weight_grad, copy, mean, damped_variance.reciprocal(), scale, groups)


def precondition_dense_(
    weight_grad: Tensor, bias_grad: Tensor | None, mean: Tensor, inverse_variance: Tensor, scale: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """:func:`precondition_dense` in place, from 1 / sigma~^2; allocates nothing larger than one row of the gradient."""
    if isinstance(scale, Tensor):
        factor, columns = 1.0, inverse_variance / scale
    else:  # 1/q^2 rides along for nothing as a factor of the two updates
        factor, columns = 1.0 / scale, inverse_variance
    if bias_grad is None:
        direction = mean * inverse_variance
        direction = direction / (1.0 + mean.dot(direction))
        weight_grad.mul_(columns)
        weight_grad.addr_(weight_grad.mv(mean), direction, beta=factor, alpha=-factor)
        return weight_grad, None
    weight_grad.addr_(bias_grad, mean, beta=factor, alpha=-factor).mul_(columns)  # step 4
    if isinstance(scale, Tensor):
        bias_grad.div_(scale)
    bias_grad.addmv_(weight_grad, mean, beta=factor, alpha=-1.0)  # step 5: the new G_w, the old G_b
    return weight_grad, bias_grad


def precondition_conv_(
    weight_grad: Tensor,
    bias_grad: Tensor | None,
    mean: Tensor,
    inverse_variance: Tensor,
    scale: float | Tensor,
    groups: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """:func:`precondition_conv` in place, from 1 / sigma~^2; the gradient may lie in channels-last order."""
    outputs, inputs = weight_grad.shape[:2]
    channels_last = not weight_grad.is_contiguous()
    ordered = weight_grad.movedim(1, -1) if channels_last else weight_grad
    if not ordered.is_contiguous():
        dense, bias_grad = precondition_conv_(
            weight_grad.contiguous(), bias_grad, mean, inverse_variance, scale, groups
        )
        return weight_grad.copy_(dense), bias_grad
    matrix = ordered.view(outputs, -1)
    taps = matrix.shape[1] // inputs
    mean = _over_taps(mean, groups, taps, channels_last)
    inverse_variance = _over_taps(inverse_variance, groups, taps, channels_last)
    if groups == 1:
        precondition_dense_(matrix, bias_grad, mean[0], inverse_variance[0], scale)
    else:
        _precondition_groups_(matrix.view(groups, outputs // groups, -1), bias_grad, mean, inverse_variance, scale)
    return weight_grad, bias_grad


def precondition_rows(
    weight_grad: Tensor, bias_grad: Tensor | None, mean: Tensor, columns: Tensor, factor: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Steps 4 and 5 of either algorithm as sums over rows, from which a compiler makes one pass over the gradient.

    The same as :func:`precondition_dense` and :func:`precondition_conv`, up to rounding.

    Args:
        weight_grad: G_w, (n', n) or (c', c / groups, k, ...).
        bias_grad: G_b, (n') or (c'), or None.
        mean: mu, and
        columns: 1 / (q^2 sigma~^2), of the inputs of each row: (1, n, 1, ...), or (n', n, 1, ...) where rows differ.
        factor: 1 / q^2, a number or a 0-d tensor.

    Returns:
        The new G_w and G_b.
    """
    inside = list(range(1, weight_grad.dim()))
    if bias_grad is None:
        direction = mean * columns
        moment = (mean * direction).expand(-1, *weight_grad.shape[1:]).sum(inside, keepdim=True)
        along = (weight_grad * direction).sum(inside, keepdim=True)
        return weight_grad * columns - along * (direction / (factor + moment)), None
    weight_grad = (weight_grad - bias_grad.view(-1, *[1] * len(inside)) * mean) * columns  # step 4
    return weight_grad, bias_grad * factor - (weight_grad * mean).sum(inside)  # step 5


def in_memory(vector: Tensor, *, traced: bool = False) -> Tensor:
    """A vector that stands beside many rows, as a compiled step is to have it: else each row would compute it anew.

    A CPU's compiler keeps what is joined. In an eager step it is in memory already.

    Args:
        vector: (n,).
        traced: whether it is traced for a compiler although torch does not say that it compiles.
    """
    if not (vector.is_cpu and (traced or torch.compiler.is_compiling())):
        return vector
    half = len(vector) // 2
    return torch.cat([vector[:half], vector[half:]])


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or as it is where that is as wide: the precision of statistics and losses under autocast.

    Args:
        tensor: of any shape, in a floating-point dtype.
    """
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def _precondition_groups_(
    weight_grad: Tensor, bias_grad: Tensor | None, mean: Tensor, inverse_variance: Tensor, scale: float | Tensor
) -> None:
    """Steps 4 and 5 for all groups at once: ``weight_grad`` (g, n', n), ``mean`` and ``inverse_variance`` (g, n)."""
    columns = (inverse_variance / scale).unsqueeze(1)
    if bias_grad is None:
        direction = mean * inverse_variance
        direction = direction / (1.0 + (mean * direction).sum(1, keepdim=True))
        weight_grad.mul_(columns)
        weight_grad.addcmul_(weight_grad.bmm(mean.unsqueeze(2)), direction.unsqueeze(1), value=-1.0)
        return
    by_group = bias_grad.view(weight_grad.shape[0], -1, 1)
    weight_grad.addcmul_(by_group, mean.unsqueeze(1), value=-1.0).mul_(columns)  # step 4
    bias_grad.div_(scale)
    by_group.baddbmm_(weight_grad, mean.unsqueeze(2), alpha=-1.0)  # step 5


def _over_taps(vector: Tensor, groups: int, taps: int, channels_last: bool) -> Tensor:
    """(c,) per channel -> (groups, c k^2 / groups) per column of the weight matrix, in the order of its memory."""
    by_group = vector.view(groups, -1)
    if channels_last:
        return by_group.unsqueeze(1).expand(-1, taps, -1).reshape(groups, -1)
    return by_group.unsqueeze(2).expand(-1, -1, taps).reshape(groups, -1)


def _statistics_of_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the columns of (R, n)."""
    if torch.compiler.is_compiling() and rows.is_cpu:
        return statistics_by_sums(rows)
    return _in_passes(rows)


def _statistics_of_planes(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the channels of contiguous (N, c, r, ...).

    On the CPU, BN's kernel for such tensors works element by element, and its kernel for (R, n) is vectorized. So large
    inputs are taken as (N, c r ...), and the statistics of a channel's positions are then pooled.
    """
    large = len(activations) >= _EXAMPLES_FOR_COLUMNS and activations.numel() >= _ELEMENTS_FOR_COLUMNS
    if not (activations.is_cpu and large):
        return _in_passes(activations)
    mean, variance = (found.view(activations.shape[1], -1).t() for found in _in_passes(activations.flatten(1)))
    return pool_statistics(mean, variance, mean.new_ones(len(mean)))


def _in_passes(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of dimension 1, by as many passes of the kernel as its accuracy needs."""
    if len(activations) <= _ROWS_PER_PASS or not activations.is_cpu:
        return _one_pass(activations)
    pieces = torch.split(activations, _ROWS_PER_PASS)
    means, variances = zip(*(_one_pass(piece) for piece in pieces), strict=True)
    return pool_statistics(torch.stack(means), torch.stack(variances), [len(piece) for piece in pieces])


def _one_pass(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of dimension 1, by BN's own kernel where it exists: up to 70 times as fast as ``var_mean``.

    In a compiled step on a GPU it is one kernel for rows, where the compiler makes two; planes it joins with others.
    """
    joined = torch.compiler.is_compiling() and activations.dim() > 2
    if activations.is_cpu or (activations.is_cuda and not joined):
        mean, variance = torch.batch_norm_update_stats(activations, None, None, 0.0)
        return mean, variance
    others = [dim for dim in range(activations.dim()) if dim != 1]
    variance, mean = torch.var_mean(activations, others, correction=0)
    return mean, variance


def statistics_by_sums(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the columns, from sums over their distances from the first row, so that little cancels."""
    # Each sum is over distances of its own: what is read twice some functions would keep (see ``fused.compiled``).
    first = rows[0]
    mean = _sum_of_rows(rows, lambda some: some - first) / len(rows)
    square = _sum_of_rows(rows, lambda some: (first - some).square()) / len(rows)
    return first + mean, (square - mean.square()).clamp(min=0)


def _sum_of_rows(rows: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum over rows of what is made of them, in blocks."""
    whole = len(rows) // _ROWS_PER_BLOCK * _ROWS_PER_BLOCK
    blocks = torch.unflatten(of(rows[:whole]), 0, (whole // _ROWS_PER_BLOCK, _ROWS_PER_BLOCK))
    return blocks.sum(1).sum(0) + of(rows[whole:]).sum(0)


def _larger(first: float | Tensor, second: float | Tensor) -> float | Tensor:
    if isinstance(first, Tensor):
        return torch.maximum(first, second) if isinstance(second, Tensor) else first.clamp(min=second)
    return second.clamp(min=first) if isinstance(second, Tensor) else max(first, second)
