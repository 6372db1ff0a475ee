"""What K-FAC differentiates to find its Fisher: the model's own likelihood at labels that the model itself expects.

The loss is the mean over labels of -log p(y), p the softmax of the logits. With b the gradient of one label's
-log p(y) at the output of a layer, the Fisher takes E[b b^T] over y drawn from p. What is differentiated here are sums
over labels, so that what reaches the output of a layer are the b themselves.

Source: Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature", ICML 2015
(arXiv:1503.05671), sections 2 and 5.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_MASK = 0xFFFFFFFF
# Of Wellons' search for 32-bit hashes without bias; below 2^31, so that no product of them leaves int64.
_FACTORS = 0x21F0AAAD, 0x735A2D97


def of_class(logits: Tensor, number: int) -> Tensor:
    """The objective whose backward passes, one a class, add up to the expectation over labels.

    With b_c the gradient for label c, the sum over c of p_c b_c b_c^T is that of (sqrt(p_c) b_c) (sqrt(p_c) b_c)^T.

    Args:
        logits: (N, C, ...), classes in dimension 1.
        number: c, from 0.

    Returns:
        The sum over labels of sqrt(p_c) (-log p_c), whose weights sqrt(p_c) are constants; 0-d.
    """
    log = F.log_softmax(logits, 1).select(1, number)
    return -(log.detach().mul(0.5).exp() * log).sum()


def of_drawn(logits: Tensor, draw: Tensor) -> Tensor:
    """The objective at labels drawn from the model, one a row.

    Args:
        logits: (N, C, ...), classes in dimension 1.
        draw: number of this draw, 0-d int64 from 0, on the device of the logits.

    Returns:
        The sum over labels of -log p(y); 0-d.
    """
    return F.cross_entropy(logits, drawn_labels(logits, draw), reduction="sum")


def drawn_labels(logits: Tensor, draw: Tensor) -> Tensor:
    """Labels drawn from softmax(logits): the same for the same ``draw``, on every device and in every engine.

    Args:
        logits: (N, C, ...), classes in dimension 1.
        draw: as of :func:`of_drawn`.

    Returns:
        (N, ...) int64.
    """
    probability = logits.detach().double().softmax(1)
    places = torch.arange(logits.numel() // logits.shape[1], device=logits.device)
    below = probability.cumsum(1) <= uniform(draw, places).view(-1, 1, *logits.shape[2:])
    return below.sum(1).clamp(max=logits.shape[1] - 1)  # all sums may round to less than 1


def uniform(draw: Tensor, places: Tensor) -> Tensor:
    """Numbers between 0 and 1 that depend on nothing but the number of the draw and the place in it.

    No random stream is asked: one that a step moved would move what other layers draw, and generated code draws
    otherwise than torch does.

    Args:
        draw: 0-d int64, at least 0.
        places: int64.

    Returns:
        float64, of the shape of ``places``.
    """
    seed = _hash(_hash(draw >> 32) ^ (draw & _MASK))
    # The sum of one number: torch's compiler writes each use of a number out in full unless something stands between,
    # and a hash uses its own nine times over.
    seed = seed.view(1).cumsum(0)
    return (_hash(seed ^ places).double() + 0.5) / 2**32


def _hash(bits: Tensor) -> Tensor:
    """A bijection of 32-bit numbers that scatters them."""
    bits = bits ^ (bits >> 16)
    bits = bits * _FACTORS[0] & _MASK
    bits = bits ^ (bits >> 15)
    bits = bits * _FACTORS[1] & _MASK
    return bits ^ (bits >> 15)
