"""Loss and accuracy over a whole set of examples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.training.examples import Pairs


@torch.no_grad()
def evaluate(model: nn.Module, batches: Pairs, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy in eval mode; a shorter last batch counts by its size.

    Args:
        model: is left in train mode.
        batches: images and labels on ``device``.
        device: where the sums are kept until the end.
    """
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    count = 0
    for images, labels in batches:
        output = model(images)
        loss += F.cross_entropy(at_least_float32(output), labels, reduction="sum")
        correct += (output.argmax(1) == labels).sum()
        count += len(labels)
    model.train()
    return loss.item() / count, correct.item() / count
