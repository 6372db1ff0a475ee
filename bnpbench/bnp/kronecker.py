"""Steps by a product of a matrix of a layer's inputs and one of the gradients at its output, or of a vector each.

With G a layer's gradient, one row an output and one column an input, the curvature is taken for the Kronecker product
B (x) A, whose inverse turns G into B^-1 G A^-1. Nothing here reads a value back to the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bnpbench.bnp.linear import damped_inverse


def factored_inverses(inputs: Tensor, outputs: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """``(A + pi sqrt(l) I)^-1`` and ``(B + sqrt(l)/pi I)^-1``, pi^2 the mean eigenvalue of A over that of B.

    So l I is divided between the factors: their product is B (x) A + l I and two terms, small where pi is well chosen.
    The result is the same if A is multiplied by a number by which B is divided.

    Args:
        inputs: A, (groups, n, n).
        outputs: B, (groups, n', n').
        damping: l, at least 0.

    Returns:
        Both inverses, NaN where a damped factor is not positive definite. Where A or B is zero, pi is 1.

    Source: Martens and Grosse 2015 (arXiv:1503.05671), section 6.3.
    """
    # The diagonal by a stride: inductor stumbles on a warning where it lowers ``diagonal``.
    of_inputs, of_outputs = (m.flatten(1)[:, :: m.shape[2] + 1].double().mean(1) for m in (inputs, outputs))
    pi = torch.where((of_inputs > 0) & (of_outputs > 0), (of_inputs / of_outputs).sqrt(), 1.0)
    root = damping**0.5
    return damped_inverse(inputs, pi * root), damped_inverse(outputs, root / pi)


def rank_one(gradient: Tensor, inputs: Tensor, outputs: Tensor, damping: float) -> Tensor:
    """The inverse of ``(b b^T) (x) (a a^T) + l I`` times G, by the formula of Sherman and Morrison.

    Args:
        gradient: G, (groups, n', n).
        inputs: a, (groups, n).
        outputs: b, (groups, n').
        damping: l, above 0.

    Returns:
        ``(G - (b^T G a) / (l + |a|^2 |b|^2) b a^T) / l``.

    Source: Zhang, Shi and Li 2023 (arXiv:2308.02123).
    """
    a, b = inputs.unsqueeze(1), outputs.unsqueeze(2)  # a row, a column
    along = b.mT @ gradient @ a.mT
    factor = along / (damping + a.square().sum(2, keepdim=True) * b.square().sum(1, keepdim=True))
    return torch.baddbmm(gradient, factor * b, a, beta=1.0 / damping, alpha=-1.0 / damping)
