"""Synchronized BN: without a group it is torch's BN; over two ranks see tests/training/test_parallel.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from bnpbench.layers import SynchronizedBatchNorm

SHAPES = [(6, 5), (6, 5, 4), (6, 5, 3, 2)]
TORCH = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}


@pytest.mark.parametrize("momentum", [0.01, None])
@pytest.mark.parametrize("shape", SHAPES)
def test_alone_it_is_torchs_batch_norm(shape: tuple[int, ...], momentum: float | None) -> None:
    ours = SynchronizedBatchNorm(5, eps=1e-3, momentum=momentum).double()
    theirs = TORCH[len(shape)](5, eps=1e-3, momentum=momentum).double()
    generator = torch.Generator().manual_seed(0)
    for layer in (ours, theirs):
        nn.init.normal_(layer.weight, generator=generator.manual_seed(1))
        nn.init.normal_(layer.bias, generator=generator)
    for step in range(4):
        x = torch.randn(shape, dtype=torch.float64, generator=generator) * 3 + 10 * step
        slope = torch.randn(shape, dtype=torch.float64, generator=generator)
        found = [gradients(layer, x, slope) for layer in (ours, theirs)]
        for mine, other in zip(*found, strict=True):
            torch.testing.assert_close(mine, other)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def gradients(layer: nn.Module, x: Tensor, slope: Tensor) -> list[Tensor]:
    """The output, and the gradients of input, weight and bias."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(slope)
    return [t for t in (y.detach(), x.grad, *(p.grad for p in layer.parameters())) if t is not None]


def test_gradient_passes_through_the_statistics() -> None:
    layer = SynchronizedBatchNorm(3).double()
    x = torch.randn(5, 3, 2, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(layer, (x,))


def test_a_mean_far_from_zero_does_not_cancel() -> None:
    """Mean 1000, standard deviation 0.1, in float32; against the float64 statistics of the same numbers."""
    x = 1000 + 0.1 * torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    layer = SynchronizedBatchNorm(3, eps=1e-12, momentum=1.0)
    layer(x)
    torch.testing.assert_close(layer.running_var.double(), x.double().var(0), rtol=1e-2, atol=0)
    torch.testing.assert_close(layer.running_mean.double(), x.double().mean(0), rtol=1e-6, atol=0)


def beside_torchs(rank: int, store: str) -> None:
    torch.cuda.set_device(rank)
    timeout = timedelta(seconds=120)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timeout)
    generator = torch.Generator().manual_seed(rank)
    ours = SynchronizedBatchNorm(5, eps=1e-3, momentum=0.1).cuda()
    theirs = nn.SyncBatchNorm(5, eps=1e-3, momentum=0.1).cuda()
    for step in range(4):
        count = (6, 4)[rank]  # the ranks hold different numbers of examples
        x, slope = (torch.randn(count, 5, 3, 2, generator=generator).cuda() * 3 + step for _ in range(2))
        for mine, other in zip(gradients(ours, x, slope), gradients(theirs, x, slope), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    dist.destroy_process_group()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch's SyncBatchNorm refuses the CPU: needs two GPUs")
def test_on_two_gpus_it_is_torchs_sync_batch_norm(tmp_path: Path) -> None:
    mp.spawn(beside_torchs, (str(tmp_path / "store"),), nprocs=2)
