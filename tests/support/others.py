"""Networks and optimizers of others, and the swap of each of their normalizations for one of its own kind."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from bnpbench.layers.swap import Place, places, swapped
from bnpbench.sites import Normalization

NEEDS_TIMM = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="timm is not installed: pip install -e '.[models]'"
)
NEEDS_OPTIMIZERS = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("opt_einsum", "pytorch_optimizer"))),
    reason="pytorch-optimizer is not installed: pip install -e '.[optimizers]'",
)

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def scattered(model: nn.Module) -> nn.Module:
    """With affine values and running statistics that tell when they are lost."""
    for place in places(model):
        for tensor in (*place.module.parameters(), *place.module.buffers()):
            if tensor.is_floating_point():
                tensor.data.uniform_(0.5, 1.5)
            else:
                tensor.data.fill_(3)
    return model


def itself(place: Place, dims: int) -> nn.Module:
    """A fresh layer of torch's that computes what the place's does."""
    old: Any = place.module
    eps = getattr(old, "eps", 1e-6)
    if isinstance(old, _BatchNorm):
        return BATCH_NORMS[dims](place.features, eps, old.momentum, track_running_stats=old.track_running_stats)
    if isinstance(old, _InstanceNorm):
        statistics = old.track_running_stats
        return INSTANCE_NORMS[dims](
            place.features, eps, old.momentum, affine=old.affine, track_running_stats=statistics
        )
    if isinstance(old, nn.GroupNorm):
        return nn.GroupNorm(old.num_groups, place.features, eps)
    return (nn.LayerNorm if isinstance(old, nn.LayerNorm) else nn.RMSNorm)(place.features, eps)


def swapped_for_itself(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    by_name = {place.name: place for place in places(model)}

    def maker(features: int, dims: int, site: str) -> nn.Module:
        assert features == by_name[site].features
        return itself(by_name[site], dims)

    return swapped(model, Normalization(None, maker), shape)


def outputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    """In eval mode, in train mode, and in eval mode again, with the running statistics moved."""
    found = []
    with torch.no_grad():
        for training in (False, True, False):
            torch.manual_seed(7)  # of dropout
            found.append(model.train(training)(x))
    return found
