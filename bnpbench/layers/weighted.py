"""Dense layers and convolutions: what initial weights are drawn for, and what can be preconditioned."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def weighted(model: nn.Module) -> Iterator[tuple[str, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d]]:
    """The dense layers and convolutions of a model with their names, in its order."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, WEIGHTED))
