"""Two Gloo ranks: the rows of all ranks are one batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bnpbench.bnp import BNP
from bnpbench.errors import StatisticsError
from tests.support import ranks
from tests.support.oracle import Watched

RANKS = 2


class Network(nn.Module):
    """A network one of whose layers, ``rare``, can be left out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.dense, self.rare = nn.Conv1d(2, 4, 3, groups=2), nn.Linear(12, 3), nn.Linear(3, 3, bias=False)
        self.double()

    def forward(self, h: Tensor, rarely: bool = False) -> Tensor:
        h = self.dense(self.conv(h).relu().flatten(1)).tanh()
        return self.rare(h) if rarely else h


def shard(step: int, rank: int, count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return 1 + torch.randn(count, 2, 5, generator=generator, dtype=torch.float64)


def whole_batch(watched: Watched, model: nn.Module, batches: list[Tensor], rarely: bool = True) -> None:
    """The calls that one process would see."""
    watched.forget()
    with torch.no_grad():
        for batch in batches:
            model(batch, rarely)


def wrapped_in_ddp(rank: int) -> None:
    """With micro-batches in the second step, and one row on each rank in the third."""
    model = Network()
    watched, bnp = Watched(model), BNP(model)
    parallel = DistributedDataParallel(model)
    for step in range(3):
        model.zero_grad()
        count = 1 if step == 2 else 3
        if step == 1:
            with parallel.no_sync():
                parallel(shard(7, rank), True).square().mean().backward()
        parallel(shard(step, rank, count), True).square().mean().backward()
        batches = [shard(step, other, count) for other in range(RANKS)]
        whole_batch(watched, model, batches + ([shard(7, other) for other in range(RANKS)] if step == 1 else []))
        watched.check(bnp)


def layer_used_on_one_rank(rank: int) -> None:
    """The other rank has a gradient of it, by the reduction, and no rows of its own."""
    model = Network()
    watched, bnp = Watched(model), BNP(model)
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    parallel(shard(0, rank), rank == 0).square().mean().backward()
    whole_batch(watched, model, [shard(0, other) for other in range(RANKS)])
    watched.inputs["rare"] = watched.inputs["rare"][:1]  # rank 0 comes first
    watched.check(bnp)
    before = bnp.state_dict()["rare.running_mean"]
    model.zero_grad()
    parallel(shard(1, rank), False).square().mean().backward()
    bnp.precondition()
    assert bnp.state_dict()["rare.running_mean"].equal(before), "nobody used it in this step"


def unsynchronized_on_request(rank: int) -> None:
    model = Network()
    watched, bnp = Watched(model), BNP(model, process_group=False)
    model(shard(0, rank), True).square().mean().backward()
    watched.check(bnp)


def second_precondition(rank: int) -> None:
    model = Network()
    bnp = BNP(model)
    DistributedDataParallel(model)(shard(0, rank), True).square().mean().backward()
    bnp.precondition()
    with pytest.raises(StatisticsError, match="conv"):
        bnp.precondition()


def run(rank: int, store: str, scenarios: list[Callable[[int], None]]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timeout)
    try:
        for scenario in scenarios:
            scenario(rank)
    finally:
        dist.destroy_process_group()


def test_two_ranks(tmp_path: Path) -> None:
    """All scenarios in one pair of processes: their start is what takes the time."""
    scenarios = [wrapped_in_ddp, layer_used_on_one_rank, unsynchronized_on_request, second_precondition]
    ranks.together(run, RANKS, str(tmp_path / "store"), scenarios)
