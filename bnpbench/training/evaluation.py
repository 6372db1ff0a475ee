"""Loss and accuracy over a whole set of examples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EVALUATION_BATCH = 1000


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Mean loss and accuracy in eval mode; the last, shorter batch counts by its size.

    Args:
        model: is left in train mode.
        images: (examples, ...).
        labels: (examples,) int64.
    """
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=images.device)
    correct = torch.zeros((), dtype=torch.int64, device=images.device)
    for x, y in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        output = model(x)
        loss += F.cross_entropy(output, y, reduction="sum")
        correct += (output.argmax(1) == y).sum()
    model.train()
    return loss.item() / len(labels), correct.item() / len(labels)
