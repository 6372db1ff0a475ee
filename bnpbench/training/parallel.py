"""The devices that train a cell together: who takes which examples, and what they tell each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

_RENAMED = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # in torch 2.14
_OWN_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _RENAMED else "broadcast_buffers": False}


@dataclass(frozen=True)
class Group:
    """The ranks of a cell, a process and a device each, seen from one of them; by default one that talks to nobody.

    Several are the default group of torch.distributed. Every rank holds the whole network and takes its share of every
    batch, so that together they do what one device does with the whole batch.

    Attributes:
        device: of this rank.
        rank: number of this one, from 0.
        ranks: how many there are.
    """

    device: torch.device
    rank: int = 0
    ranks: int = 1

    def share(self, batch_size: int) -> slice:
        """This rank's examples of a batch; the ranks' numbers of examples differ by one at most."""
        return slice(*(batch_size * rank // self.ranks for rank in (self.rank, self.rank + 1)))

    def examples(self, batch_size: int) -> int:
        """Their number."""
        part = self.share(batch_size)
        return part.stop - part.start  # type: ignore[no-any-return]

    def wrapped(self, model: nn.Module) -> nn.Module:
        """What to call instead of ``model``, so that a backward pass averages the gradients of all ranks.

        Buffers are not exchanged: synchronized ones are equal, and of the others the first rank's count.
        """
        if self.ranks == 1:
            return model
        return DistributedDataParallel(model, **_OWN_BUFFERS)

    def loss(self, batch_size: int, mean: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """A loss, a mean over examples, whose average over the ranks is that over the examples of the whole batch.

        DDP averages over ranks; where they hold different numbers of examples, that is no average over examples. So
        each rank's mean is weighted by its share of the examples, times the number of ranks.
        """
        weight = self.examples(batch_size) * self.ranks / batch_size
        return mean if weight == 1 else lambda output, labels: mean(output, labels) * weight

    def total(self, *values: float) -> list[float]:
        """Sums over the ranks, in float64."""
        return self._exchanged(values, dist.all_reduce)

    def largest(self, value: float) -> float:
        """The largest of the ranks' values."""
        return self._exchanged((value,), lambda tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX))[0]

    def broadcast(self, *values: float) -> list[float]:
        """The values of rank 0, whatever the others gave."""
        return self._exchanged(values, lambda tensor: dist.broadcast(tensor, src=0))

    def _exchanged(self, values: tuple[float, ...], collective: Callable[[Tensor], object]) -> list[float]:
        if self.ranks == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        collective(tensor)
        return tensor.tolist()
