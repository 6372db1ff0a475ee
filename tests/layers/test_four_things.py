"""The four things against their definitions, and against the layers that they contain."""

from __future__ import annotations

from math import ceil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bnpbench.layers import FourThings

EPS, MOMENTUM = 1e-3, 0.1


def direct(x: Tensor, ghost_batch: int | None, group: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Normalized x, and the average over ghost batches of mean and unbiased variance, by loops over sets."""
    n, channels = x.shape[:2]
    ghosts = 1 if ghost_batch is None else ceil(n / ghost_batch)
    width = group or 1
    y = torch.empty_like(x)
    means, variances = [], []
    for examples in torch.arange(n).tensor_split(ghosts):
        mean, variance = [], []
        for first in range(0, channels, width):
            values = x[examples, first : first + width]
            count = values.numel()
            mu = values.sum() / count
            squares = ((values - mu) ** 2).sum()
            y[examples, first : first + width] = (values - mu) / (squares / count + EPS).sqrt()
            mean.append(mu)
            variance.append(squares / (count - 1))
        means.append(torch.stack(mean))
        variances.append(torch.stack(variance))
    return y, torch.stack(means).mean(0), torch.stack(variances).mean(0)


def along_channels(parameter: Tensor, like: Tensor) -> Tensor:
    return parameter.view(-1, *[1] * (like.ndim - 2))


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 13),
    groups=st.integers(1, 3),
    group=st.sampled_from([None, 2, 3]),
    ghost_batch=st.sampled_from([None, 2, 3, 4, 5, 16]),
    spatial=st.sampled_from([(), (3,), (2, 3)]),
    seed=st.integers(0, 1000),
)
def test_training_equals_loops_over_sets(
    n: int, groups: int, group: int | None, ghost_batch: int | None, spatial: tuple[int, ...], seed: int
) -> None:
    channels = groups * (group or 1)
    smallest = n // ceil(n / (ghost_batch or n))
    if smallest * (group or 1) * torch.Size(spatial).numel() == 1:
        return  # nothing to normalize: the cell is not applicable
    torch.manual_seed(seed)
    layer = FourThings(channels, EPS, MOMENTUM, ghost_batch, 0.1, group).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    x = (torch.randn(n, channels, *spatial, dtype=torch.float64) * 2 + 1).requires_grad_()
    pull = torch.randn_like(x)
    y = layer(x)
    normalized, mean, variance = direct(x, ghost_batch, group)
    want = normalized * along_channels(layer.weight, x) + along_channels(layer.bias, x)
    torch.testing.assert_close(y, want)
    parameters = [x, layer.weight, layer.bias]
    for ours, theirs in zip(
        torch.autograd.grad((y * pull).sum(), parameters),
        torch.autograd.grad((want * pull).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(layer.running_mean, MOMENTUM * mean.detach())
    torch.testing.assert_close(layer.running_var, 1 - MOMENTUM + MOMENTUM * variance.detach())
    assert layer.smallest_set(x.shape) == smallest * (group or 1) * torch.Size(spatial).numel()


@pytest.mark.parametrize("group", [None, 3])
@pytest.mark.parametrize("weight", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("spatial", [(), (4,), (2, 3)])
def test_inference_mixes_the_examples_own_moments_with_the_running_ones(
    spatial: tuple[int, ...], weight: float, group: int | None
) -> None:
    torch.manual_seed(1)
    layer = FourThings(6, EPS, MOMENTUM, None, weight, group).double().eval()
    for tensor in (layer.weight, layer.bias, layer.running_mean):
        nn.init.normal_(tensor)
    nn.init.uniform_(layer.running_var, 0.5, 2)
    x = torch.randn(5, 6, *spatial, dtype=torch.float64) * 2 + 1
    want = torch.empty_like(x)
    width = group or 1
    for example in range(5):
        for channel in range(6):
            g = channel // width
            values = x[example, g * width : (g + 1) * width]
            mu = weight * values.mean() + (1 - weight) * layer.running_mean[g]
            second = weight * (values**2).mean() + (1 - weight) * (layer.running_var[g] + layer.running_mean[g] ** 2)
            scaled = (x[example, channel] - mu) / (second - mu**2 + EPS).sqrt()
            want[example, channel] = scaled * layer.weight[channel] + layer.bias[channel]
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    torch.testing.assert_close(layer(x), want)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 2, 4)])
def test_with_all_four_off_it_is_batch_normalization(shape: tuple[int, ...]) -> None:
    ours = FourThings(5, EPS, MOMENTUM, ghost_batch=None, example_weight=0.0, group=None)
    batch = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(5, EPS, MOMENTUM)
    for step in range(4):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step)) * 2 + 1
        torch.testing.assert_close(ours(x), batch(x), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.eval()(x), batch.eval()(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("shape", [(1, 8), (1, 8, 3, 3)])
def test_with_one_group_and_one_example_it_is_group_normalization(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 2 + 1
    ours = FourThings(8, 1e-5, MOMENTUM, ghost_batch=None, group=8)(x)
    torch.testing.assert_close(ours, nn.GroupNorm(1, 8, eps=1e-5)(x), atol=1e-6, rtol=0)


def test_with_ghost_batches_of_one_example_it_is_group_normalization_of_every_example() -> None:
    x = torch.randn(5, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    ours = FourThings(8, 1e-5, MOMENTUM, ghost_batch=1, group=4)(x)
    torch.testing.assert_close(ours, nn.GroupNorm(2, 8, eps=1e-5)(x), atol=1e-6, rtol=0)
