"""The linear algebra of preconditioners from the side of a layer's inputs. Nothing here reads a value to the host."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def damped_inverse(matrix: Tensor, damping: float | Tensor) -> Tensor:
    """``(matrix + damping I)^-1`` by Cholesky's factorization in float64.

    In float32 the relative error would be 1e-7 times the condition number, which is the largest eigenvalue over the
    damping, and that is often a million.

    Args:
        matrix: symmetric, (..., n, n).
        damping: a number, or (...).

    Returns:
        The inverse in the matrix's precision; NaN where the damped matrix is not positive definite, or not finite.
    """
    double = matrix.double()
    eye = torch.eye(matrix.shape[-1], dtype=double.dtype, device=double.device)
    damped = double + (eye * damping[..., None, None] if isinstance(damping, Tensor) else eye * damping)
    factor, failed = torch.linalg.cholesky_ex(damped)  # unlike cholesky, it does not wait for the device to tell
    fine = ((failed == 0) & damped.isfinite().all((-2, -1)))[..., None, None]
    inverse = torch.cholesky_inverse(torch.where(fine, factor, eye))
    return torch.where(fine, inverse, math.nan).to(matrix.dtype)


def fold_normalized(mean: Tensor, weight: Tensor, value: Tensor, rho: float) -> None:
    """A running mean that is normalized: ``mean <- rho mean + (1 - rho) value``, divided by the sum of these weights.

    So the first value counts whole, whatever rho is, without a start that would have to be forgotten.

    Args:
        mean: the running mean, overwritten; of any value before the first step.
        weight: 0-d, the sum of the weights so far, ``1 - rho^t``; 0 before the first step; overwritten.
        value: of this step.
        rho: weight of the past, from 0 to less than 1.
    """
    weight.mul_(rho).add_(1.0 - rho)
    mean.lerp_(value, (1.0 - rho) / weight)


def times(weight: Tensor, bias: Tensor | None, matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """``[G_b | G_w] M``, without the copy that joins them.

    Args:
        weight: G_w, (groups, n', n).
        bias: G_b, (groups, n', 1), or None.
        matrix: M, (groups, n + 1, n + 1), or (groups, n, n) where there is no bias.

    Returns:
        The new G_w and G_b.
    """
    if bias is None:
        return weight.bmm(matrix), None
    inner = matrix[:, 1:, 1:]
    return torch.baddbmm(bias * matrix[:, :1, 1:], weight, inner), torch.baddbmm(
        bias * matrix[:, :1, :1], weight, matrix[:, 1:, :1]
    )


def times_rank_one_(
    weight: Tensor, bias: Tensor | None, vector: Tensor, factor: Tensor, scale: float
) -> tuple[Tensor, Tensor | None]:
    """``scale ([G_b | G_w] - factor [G_b | G_w] v v^T)``, in place.

    Args:
        weight: G_w, (groups, n', n); overwritten.
        bias: G_b, (groups, n', 1), or None; overwritten.
        vector: v, (groups, n + 1), or (groups, n) where there is no bias.
        factor: (groups).
        scale: a number.

    Returns:
        The new G_w and G_b.
    """
    inner = vector if bias is None else vector[:, 1:]
    along = weight.bmm(inner.unsqueeze(2))
    if bias is not None:
        along = along + bias * vector[:, :1].unsqueeze(2)
    along = along * factor.view(-1, 1, 1)
    weight.baddbmm_(along, inner.unsqueeze(1), beta=scale, alpha=-scale)
    if bias is not None:
        bias.sub_(along * vector[:, :1].unsqueeze(2)).mul_(scale)
    return weight, bias
