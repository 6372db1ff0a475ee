"""Proposition 7: a BN step without gradient through the statistics is a BNP step on the merged network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP

EPS = 1e-5


def normalized(h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """B_{0,1}(h) with statistics that no gradient passes through."""
    dims = [d for d in range(h.dim()) if d != 1]
    mean = h.detach().mean(dims, keepdim=True)
    deviation = (h.detach().var(dims, correction=0, keepdim=True) + EPS).sqrt()
    return (h - mean) / deviation, mean, deviation


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("batch_size", [3, 40])
def test_bn_step_is_a_bnp_step_on_the_merged_network(kind: str, batch_size: int) -> None:
    torch.manual_seed(0)
    if kind == "dense":
        layers = [nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 3)]
        rows = torch.randn(batch_size, 4, dtype=torch.float64)
    else:
        layers = [nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 2), nn.Conv2d(3, 2, 3, stride=2)]
        rows = torch.randn(batch_size, 2, 8, 8, dtype=torch.float64)
    bn_network = nn.ModuleList(layers).double()
    merged = nn.ModuleList([type(layer)(*_arguments(layer)) for layer in layers]).double()

    # The BN network, and the vanilla one with W^ = W diag(1/sigma_H), b^ = b - W diag(1/sigma_H) mu_H.
    h, statistics = rows, []
    for index, layer in enumerate(bn_network):
        mean, deviation = torch.zeros((), dtype=rows.dtype), torch.ones((), dtype=rows.dtype)
        if index:
            h, mean, deviation = normalized(h.tanh())
        statistics.append((mean, deviation))
        _merge(layer, merged[index], mean, deviation)
        h = layer(h)
    h.sin().mean().backward()

    # Only layers that a BN feeds are preconditioned: the first is not.
    bnp = BNP(
        merged, eps1=0.0, eps2=EPS, statistics="batch", scale=False, layers=lambda name, module: name != "0"
    )  # sigma~^2 = sigma_H^2 + epsilon of the BN layer
    output = rows
    for index, layer in enumerate(merged):
        output = layer(output.tanh() if index else output)
    torch.testing.assert_close(output, h, rtol=1e-10, atol=1e-12)
    output.sin().mean().backward()
    bnp.precondition()

    for net in (bn_network, merged):
        torch.optim.SGD(net.parameters(), lr=0.3).step()
    for index, layer in enumerate(bn_network):
        expected = type(layer)(*_arguments(layer)).double()
        _merge(layer, expected, *statistics[index])
        torch.testing.assert_close(merged[index].weight, expected.weight, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(merged[index].bias, expected.bias, rtol=1e-10, atol=1e-10)


def test_without_damping_at_all() -> None:
    """eps1 = eps2 = 0 and a BN with epsilon 0."""
    torch.manual_seed(0)
    layer, merged = nn.Linear(5, 3).double(), nn.Linear(5, 3).double()
    rows = 4 + torch.randn(30, 5, dtype=torch.float64)
    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    _merge(layer, merged, mean, deviation)
    bnp = BNP(merged, statistics="batch", eps1=0.0, eps2=0.0, scale=False)
    layer((rows - mean) / deviation).sin().mean().backward()
    merged(rows).sin().mean().backward()
    bnp.precondition()
    for net in (layer, merged):
        torch.optim.SGD(net.parameters(), lr=0.3).step()
    expected = nn.Linear(5, 3).double()
    _merge(layer, expected, mean, deviation)
    torch.testing.assert_close(merged.weight, expected.weight, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(merged.bias, expected.bias, rtol=1e-10, atol=1e-10)


def _arguments(layer: nn.Module) -> tuple[object, ...]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride


def _merge(layer: nn.Module, merged: nn.Module, mean: Tensor, deviation: Tensor) -> None:
    """W^ = W diag(1/sigma_H), b^ = b - W diag(1/sigma_H) mu_H."""
    with torch.no_grad():
        channels = layer.weight.shape[1]
        taps = (1,) * (layer.weight.dim() - 2)
        scaled = layer.weight / deviation.expand(1, channels, *taps).reshape(1, channels, *taps)
        merged.weight.copy_(scaled)
        shift = (scaled * mean.expand(1, channels, *taps).reshape(1, channels, *taps)).flatten(1).sum(1)
        merged.bias.copy_(layer.bias - shift)
