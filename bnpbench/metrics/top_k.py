"""The share of labels among the likeliest classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bnpbench.fields import Positive
from bnpbench.metrics.base import MetricPlugin

if TYPE_CHECKING:
    from torch import Tensor


class TopK(MetricPlugin):
    """The share of examples whose class is among the ``k`` likeliest: ``score.top5``."""

    kind: Literal["top-k"]
    k: Positive = 5

    @property
    def name(self) -> str:
        return f"top{self.k}"

    def of_each(self, output: Tensor, labels: Tensor) -> Tensor:
        likeliest = output.topk(min(self.k, output.shape[1]), dim=1).indices
        return (likeliest == labels.unsqueeze(1)).any(1)
