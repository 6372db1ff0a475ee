"""Gradients that are too large are made smaller, between the method's change of them and the update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bnpbench.layers import weighted
from bnpbench.suite import Settings

SMALLEST_NORM = 1e-3
"""That a unit's weights are taken to have at least, so that those which begin from 0 can move."""


def clipping(settings: Settings, model: nn.Module) -> Callable[[], object] | None:
    """What makes the gradients of ``model`` smaller as ``settings`` say, unit by unit and then together; or None."""
    parameters, adaptive, together = list(model.parameters()), settings.clip_adaptive, settings.clip_norm
    clips: list[Callable[[], object]] = []
    if adaptive is not None:
        last = {parameter for _, layer in list(weighted(model))[-1:] for parameter in layer.parameters()}
        clips.append(partial(clip_adaptively, [one for one in parameters if one not in last], adaptive))
    if together is not None:
        clips.append(partial(nn.utils.clip_grad_norm_, parameters, together))
    return partial(_in_turn, clips) if clips else None


@torch.no_grad()
def clip_adaptively(parameters: Iterable[nn.Parameter], ratio: float) -> None:
    """Gradients in place: no unit's has a norm above ``ratio`` times that of the unit's weights.

    A unit is an output of a dense layer or a convolution, all that is summed up in it; a bias, or what else has a
    single dimension, is one. Source: Brock, De, Smith, Simonyan, "High-Performance Large-Scale Image Recognition
    Without Normalization", arXiv 2102.06171, equation 3 (adaptive gradient clipping), which leaves the last layer out.

    Args:
        parameters: those of the last layer apart.
        ratio: their λ.
    """
    for parameter in parameters:
        if parameter.grad is not None:
            allowed = ratio * _norms(parameter).clamp(min=SMALLEST_NORM)
            parameter.grad.mul_((allowed / _norms(parameter.grad)).clamp(max=1))


def _norms(tensor: Tensor) -> Tensor:
    """Of each unit, in a shape that spreads over ``tensor``."""
    vector = sum(size > 1 for size in tensor.shape) <= 1
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=None if vector else list(range(1, tensor.ndim)), keepdim=True)
    return norms


def _in_turn(clips: Sequence[Callable[[], object]]) -> None:
    for clip in clips:
        clip()
