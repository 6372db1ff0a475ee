"""What BNP adds to data-parallel training of ResNet-50, and what synchronized BN adds: counted, then put into a model.

    python tests/benchmarks/scale.py > reports/scale.md

Counted: one training step of torchvision's ResNet-50 under DistributedDataParallel, with torch's "fake" process group,
whose collectives return at once. Their sizes depend neither on the images' size nor on the number of ranks. The times
are a model, not a measurement. Some seconds on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log2
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torchvision
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from bnpbench.bnp import BNP
from bnpbench.layers import SynchronizedBatchNorm
from bnpbench.training.parallel import Group


@dataclass(frozen=True)
class Link:
    """Assumed: seconds to hand a message to the next rank, bytes a second that a rank sends while it receives."""

    name: str
    ranks: int
    latency: float
    bandwidth: float


LINKS = (
    Link("8 GPUs, one machine", 8, 3e-6, 200e9),
    Link("512 GPUs, 64 machines", 512, 10e-6, 25e9),
)


@dataclass(frozen=True)
class Message:
    """A collective that a step makes: ``all_reduce`` of so many bytes, or ``all_gather`` of so many from each rank."""

    kind: str
    bytes: int

    def sent(self, ranks: int) -> float:
        """Bytes that each rank sends around the ring."""
        return (2 / ranks if self.kind == "all_reduce" else 1) * (ranks - 1) * self.bytes

    def hops(self, ranks: int) -> int:
        return (2 if self.kind == "all_reduce" else 1) * (ranks - 1)

    def ring(self, link: Link) -> float:
        return self.hops(link.ranks) * link.latency + self.sent(link.ranks) / link.bandwidth

    def tree(self, link: Link) -> float:
        """As ``ring``, but with the latency of a tree, which libraries take for short messages."""
        hops = (2 if self.kind == "all_reduce" else 1) * ceil(log2(link.ranks))
        return hops * link.latency + self.sent(link.ranks) / link.bandwidth


@contextmanager
def recorded(messages: list[Message]) -> Iterator[None]:
    """Every all-reduce that Python code makes."""
    real = dist.all_reduce

    def all_reduce(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        messages.append(Message("all_reduce", tensor.numel() * tensor.element_size()))
        return real(tensor, *arguments, **options)

    with mock.patch.object(dist, "all_reduce", all_reduce):
        yield


def resnet50(norm: Callable[[int], nn.Module], *, conv_bias: bool) -> nn.Module:
    model = torchvision.models.resnet50(norm_layer=norm)
    for module in model.modules():
        if conv_bias and isinstance(module, nn.Conv2d):
            module.bias = nn.Parameter(torch.zeros(module.out_channels))
    return model


def counted(model: nn.Module, *, preconditioned: bool = False) -> tuple[list[Message], list[Message]]:
    """The messages of the gradients, by DDP's buckets, and all others, of one training step."""
    gradients: list[Message] = []
    others: list[Message] = []

    def note(state, bucket):  # DDP reads annotations, and refuses those that are texts
        buffer = bucket.buffer()
        gradients.append(Message("all_reduce", buffer.numel() * buffer.element_size()))
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    bnp = BNP(model) if preconditioned else None
    parallel = Group(torch.device("cpu"), ranks=LINKS[0].ranks).wrapped(model)
    assert isinstance(parallel, DistributedDataParallel)
    parallel.register_comm_hook(None, note)
    for _ in range(2):  # after the first, DDP orders its buckets by the gradients' arrival
        gradients.clear()
        others.clear()
        with recorded(others):
            parallel(torch.randn(2, 3, 64, 64)).square().mean().backward()
            if bnp is not None:
                bnp.precondition()
    return gradients, others


def torch_sync_batch_norm(model: nn.Module) -> list[Message]:
    """What torch.nn.SyncBatchNorm sends, which refuses the CPU; from its code (torch/nn/modules/_functions.py).

    Forward an all-gather of mean, inverse deviation and count, 2C + 1 numbers; backward an all-reduce of two sums, 2C.
    """
    channels = [module.num_features for module in model.modules() if isinstance(module, SynchronizedBatchNorm)]
    forward = [Message("all_gather", 4 * (2 * c + 1)) for c in channels]
    return forward + [Message("all_reduce", 4 * 2 * c) for c in channels]


def row(name: str, messages: list[Message]) -> list[str]:
    cells = [name, str(len(messages)), f"{sum(m.bytes for m in messages):,}"]
    for link in LINKS:
        cells += [
            f"{sum(m.sent(link.ranks) for m in messages):,.0f}",
            f"{1e3 * sum(m.ring(link) for m in messages):.3f}",
            f"{1e3 * sum(m.tree(link) for m in messages):.3f}",
        ]
    return cells


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("fake", rank=0, world_size=LINKS[0].ranks, store=FakeStore())
    synchronized = resnet50(SynchronizedBatchNorm, conv_bias=False)
    bn_gradients, ours = counted(synchronized)
    plain_gradients, added = counted(resnet50(nn.Identity, conv_bias=True), preconditioned=True)
    grouped = resnet50(lambda features: nn.GroupNorm(32, features), conv_bias=True)
    grouped_gradients, added_to_grouped = counted(grouped, preconditioned=True)
    assert added == added_to_grouped
    layers = [module for module in grouped.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    inputs = sum(m.in_channels if isinstance(m, nn.Conv2d) else m.in_features for m in layers)
    rows = [
        row("gradients, BN (DDP)", bn_gradients),
        row("gradients, BNP (DDP)", plain_gradients),
        row("gradients, BNP+GN (DDP)", grouped_gradients),
        row("**BNP adds**", added),
        row("**BN adds**: torch's SyncBatchNorm", torch_sync_batch_norm(synchronized)),
        row("**BN adds**: bnpbench's synchronized BN", ours),
        row("BN with each device's own statistics adds", []),
    ]
    heads = ["a step", "collectives", "bytes in"]
    for link in LINKS:
        heads += [f"{link.ranks} GPUs: bytes sent", "ring, ms", "tree, ms"]
    table = tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=["left"] + ["right"] * 8)
    share = added[0].bytes / sum(message.bytes for message in plain_gradients)
    print(text(table, layers=len(layers), inputs=inputs, added=added[0], share=share))
    dist.destroy_process_group()


def text(table: str, *, layers: int, inputs: int, added: Message, share: float) -> str:
    links = "\n".join(
        f"- {link.name}: α = {1e6 * link.latency:g} µs, B = {link.bandwidth / 1e9:g} GB/s a rank" for link in LINKS
    )
    return f"""# At scale: what BNP adds to data-parallel ResNet-50

Message sizes and numbers of collectives are **counted**: one training step of torchvision's ResNet-50 in float32 (1000
classes) under DistributedDataParallel, its process group replaced by torch's "fake" one. The times are **a model, not
a measurement**: nothing here ran on a GPU, or on more than one machine. Printed by `python tests/benchmarks/scale.py`.

BNP reduces the statistics of all its layers in one collective after the backward pass: for each of {layers} layers
three counts, and two sums for each of {inputs:,} input channels, in float64:
8 · (3 · {layers} + 2 · {inputs:,}) = {added.bytes:,} bytes. Synchronized BN has two collectives for every one of its
layers, one forward and one backward. The networks for BNP have a bias on every convolution.

{table}

"bytes in" is what a rank puts in, summed over the collectives of a step; "bytes sent" what it sends around the ring.

## The model

With p ranks, m bytes, α seconds a hop and B bytes a second and rank, nothing overlapping:

- ring all-reduce: 2(p − 1)α + 2(p − 1)/p · m/B
- ring all-gather of m bytes from each rank: (p − 1)α + (p − 1) · m/B
- "tree": the same bytes, with ⌈log₂ p⌉ instead of p − 1 hops in the latency. Libraries such as NCCL take trees
  where messages are short; a ring of 512 ranks overstates their latency.

Assumed, not measured:

{links}
- 512 GPUs are one flat ring or tree with the link of the slowest part, the network; a hierarchy does better.
- Waiting for the slowest rank, the host's calls and the arithmetic of statistics cost nothing.

## How to read it

- BNP's message is {share:.2%} of its network's gradients. What it costs is one more wait.
- DDP hides most of the gradients' time behind the backward pass. BNP's collective comes after that and is hidden by
  nothing; those of synchronized BN stand in the middle of both passes and are hidden by nothing either.
- Per collective the latency rules, so the ratio between BN and BNP is about that of their numbers of collectives
  whatever α is, as long as the messages are short against αB. What a rank of SyncBatchNorm's all-gather sends, receives
  and combines grows with p; in an all-reduce it does not.
- BNP could put its sums into the last bucket of DDP, or send them layer by layer during the backward pass. It does not.
- Steps 3 to 5 of BNP are done by every rank for the whole network, as the optimizer's step is; they do not get cheaper
  with more ranks.
"""


if __name__ == "__main__":
    main()
