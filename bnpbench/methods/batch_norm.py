"""Batch normalization behind the activation, as the paper has it, and what other methods share with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bnpbench.fields import PositiveFloat, default_of
from bnpbench.methods.base import Ink, MethodPlugin, Published
from bnpbench.methods.preconditioning import Training
from bnpbench.sites import Misfit, Site

if TYPE_CHECKING:
    from torch import Tensor, nn


class BatchStatistics(MethodPlugin):
    """What normalizations by statistics of the batch have in common.

    Epsilon and momentum default to TensorFlow's, which the paper's FC and CNN runs used.

    Attributes:
        input: whether the network's input is normalized too, as the paper's equation (2) with h⁰ = x reads.
    """

    eps: PositiveFloat = 1e-3
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.01
    input: bool = False  # each feature of x, each channel of images


class AnyBatchNorm(BatchStatistics):
    """Batch normalization (Ioffe and Szegedy 2015), wherever it stands."""

    # by running values; by the average of all mini-batch statistics since the first step; by the statistics of the
    # network as it stands, averaged over the training batches (Algorithm 2 of Ioffe and Szegedy 2015)
    inference: Literal["running", "averaged", "frozen"] = "running"
    sync: bool = True  # on several devices, statistics over all of them; false: each takes its own

    @model_validator(mode="after")
    def _momentum_of_running_values(self) -> Self:
        if self.inference != "running" and self.momentum != default_of(BatchStatistics, "momentum"):
            raise ValueError(f'momentum moves running values, by which inference = "{self.inference}" does not go')
        return self

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from torch import nn

        from bnpbench.layers import AveragedBatchNorm

        if self.inference == "averaged":
            return AveragedBatchNorm(features, eps=self.eps)
        norms = nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
        return norms[spatial_dims](features, eps=self.eps, momentum=self.momentum)

    def synchronized_layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        from bnpbench.layers import SynchronizedBatchNorm

        if not self.sync:
            return self.layer(features, spatial_dims, site)
        momentum = None if self.inference == "averaged" else self.momentum
        return SynchronizedBatchNorm(features, eps=self.eps, momentum=momentum)

    def published(self, model: nn.Module, batch: Tensor) -> Published:
        """The paper's count (section 4: its backward formula evaluated literally), and the plain algorithm's."""
        from bnpbench.bnp.costs import bn_flops
        from bnpbench.measure.flops import batch_norm_sizes, count_plain_bn

        sizes = batch_norm_sizes(model, batch)
        return Published(
            sum(bn_flops(features, rows) for features, rows, _ in sizes),
            sum(count_plain_bn(features, rows, passes_on=passes) for features, rows, passes in sizes),
        )

    def refuses(self, training: Training) -> Misfit | None:
        if training.devices == 1 and not self.sync:
            return Misfit("one device has nothing to synchronize with: leave sync out, or raise devices", "sync")
        return super().refuses(training)

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return examples * site.positions


class BatchNorm(AnyBatchNorm):
    """Batch normalization after the activation."""

    ink: ClassVar[Ink] = Ink("#0072b2", "#4aa8f0", "s")
    baseline: ClassVar[int] = 1
    kind: Literal["bn"]
