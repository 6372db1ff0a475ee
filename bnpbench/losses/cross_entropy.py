"""Cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.losses.base import LossPlugin

if TYPE_CHECKING:
    from torch import Tensor


class CrossEntropy(LossPlugin):
    """The negative logarithm of what softmax makes of a label's logit."""

    smooths: ClassVar[bool] = True
    entropy: ClassVar[bool] = True
    kind: Literal["cross-entropy"]

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        import torch.nn.functional as F

        return F.cross_entropy(output, labels, reduction="none")

    def mean(self, output: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
        import torch.nn.functional as F

        return F.cross_entropy(output, labels, label_smoothing=label_smoothing)

    def total(self, output: Tensor, labels: Tensor) -> Tensor:
        import torch.nn.functional as F

        return F.cross_entropy(output, labels, reduction="sum")
