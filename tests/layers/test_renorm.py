"""Batch renormalization against Ioffe's Algorithm 1, written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bnpbench.layers import BatchRenorm

EPS, MOMENTUM = 1e-3, 0.1


class Direct:
    """Algorithm 1 by its letters, on rows (m, C), with autograd taking r and d as constants."""

    def __init__(self, features: int, clipped: bool) -> None:
        self.mu = torch.zeros(features, dtype=torch.float64)
        self.variance = torch.ones(features, dtype=torch.float64)
        self.clipped, self.t = clipped, 0

    def __call__(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        rows = len(x)
        mu_b = x.sum(0) / rows
        sigma_b = (((x - mu_b) ** 2).sum(0) / rows + EPS) ** 0.5
        sigma = (self.variance + EPS) ** 0.5
        r, d = (sigma_b / sigma).detach(), ((mu_b - self.mu) / sigma).detach()
        if self.clipped:
            r_max = min(max(1 + 2 * (self.t - 5000) / 35000, 1.0), 3.0)
            d_max = min(max(5 * (self.t - 5000) / 20000, 0.0), 5.0)
            r = torch.minimum(torch.maximum(r, torch.tensor(1 / r_max)), torch.tensor(r_max))
            d = torch.minimum(torch.maximum(d, torch.tensor(-d_max)), torch.tensor(d_max))
        y = gamma * ((x - mu_b) / sigma_b * r + d) + beta
        unbiased = ((x - mu_b) ** 2).sum(0).detach() / max(rows - 1, 1)
        self.mu = self.mu + MOMENTUM * (mu_b.detach() - self.mu)
        self.variance = self.variance + MOMENTUM * (unbiased - self.variance)
        self.t += 1
        return y


def as_rows(x: Tensor) -> Tensor:
    return x.movedim(1, -1).reshape(-1, x.shape[1])


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("shape", [(6, 5), (1, 5), (2, 5, 3), (3, 5, 2, 4), (1, 5, 2, 2)])
@pytest.mark.parametrize("start", [0, 12_000, 30_000, 60_000])
def test_equals_the_algorithm(shape: tuple[int, ...], clipped: bool, start: int) -> None:
    torch.manual_seed(0)
    layer, direct = BatchRenorm(5, EPS, MOMENTUM, clipped).double(), Direct(5, clipped)
    layer.num_batches_tracked.fill_(start)
    direct.t = start
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    for step in range(5):
        x = (torch.randn(shape, dtype=torch.float64) * (step + 1) + step).requires_grad_()
        pull = torch.randn(shape, dtype=torch.float64)
        got = torch.autograd.grad((layer(x) * pull).sum(), [x, layer.weight, layer.bias])
        expected_y = direct(as_rows(x), layer.weight, layer.bias)
        want = torch.autograd.grad((expected_y * as_rows(pull)).sum(), [x, layer.weight, layer.bias])
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs)
        with torch.no_grad():
            torch.testing.assert_close(layer.running_mean, direct.mu)
            torch.testing.assert_close(layer.running_var, direct.variance)
    with torch.no_grad():
        y = layer.eval()(x)
        rows = (as_rows(x) - direct.mu) / (direct.variance + EPS).sqrt() * layer.weight + layer.bias
    torch.testing.assert_close(as_rows(y), rows)


@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 2, 4)])
def test_at_r_one_and_d_zero_it_is_batch_normalization_in_training_and_inference(shape: tuple[int, ...]) -> None:
    renorm = BatchRenorm(5, EPS, MOMENTUM, clipped=True)  # its first 5,000 steps have r = 1, d = 0
    batch = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(5, EPS, MOMENTUM)
    for step in range(4):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step)) * 2 + 1
        torch.testing.assert_close(renorm(x), batch(x), atol=1e-6, rtol=0)
    torch.testing.assert_close(renorm.eval()(x), batch.eval()(x), atol=1e-6, rtol=0)


LIMITS = {5_000: (1, 0), 15_000: (1 + 2 * 10 / 35, 2.5), 25_000: (1 + 2 * 20 / 35, 5), 40_000: (3, 5), 10**6: (3, 5)}


@pytest.mark.parametrize("steps", [0, *LIMITS])
def test_the_limits_follow_the_schedule(steps: int) -> None:
    layer = BatchRenorm(2).double()
    layer.num_batches_tracked.fill_(steps)
    assert [limit.item() for limit in layer.limits()] == pytest.approx(LIMITS.get(steps, (1, 0)))


def test_inference_changes_nothing() -> None:
    layer = BatchRenorm(3).eval()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer(torch.randn(4, 3))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])
