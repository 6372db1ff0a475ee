"""Batch normalization and the merged network that computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.theory.equivalence import EPSILON, bn_forward, make_bnp, merge, merged_network


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 + 1


def dense() -> list[nn.Linear | nn.Conv2d]:
    torch.manual_seed(0)
    return [nn.Linear(6, 7).double(), nn.Linear(7, 5).double(), nn.Linear(5, 3).double()]


def convolutions() -> list[nn.Linear | nn.Conv2d]:
    torch.manual_seed(0)
    return [nn.Conv2d(2, 4, 3).double(), nn.Conv2d(4, 3, (3, 2)).double()]


NETWORKS = pytest.mark.parametrize(("make", "shape"), [(dense, (9, 6)), (convolutions, (5, 2, 6, 7))])


@pytest.mark.parametrize(("layer", "shape"), [(nn.Linear(4, 3), (9, 4)), (nn.Conv2d(4, 3, 2), (5, 4, 6, 7))])
def test_a_merged_layer_reads_what_was_not_normalized(layer: nn.Linear | nn.Conv2d, shape: tuple[int, ...]) -> None:
    layer.double()
    x, mean, deviation = drawn(*shape), drawn(4, seed=1), drawn(4, seed=2).abs()
    merged = type(layer)(4, 3, *([2] if isinstance(layer, nn.Conv2d) else [])).double()
    with torch.no_grad():
        for parameter, value in zip(merged.parameters(), merge(layer.weight, layer.bias, mean, deviation), strict=True):
            parameter.copy_(value)
    along = (1, -1, *[1] * (len(shape) - 2))
    torch.testing.assert_close(merged(x), layer((x - mean.view(along)) / deviation.view(along)))


@NETWORKS
@pytest.mark.parametrize("through", [False, True])
def test_the_network_with_batch_normalization_is_torchs(make: object, shape: tuple[int, ...], through: bool) -> None:
    assert callable(make)
    layers, x = make(), drawn(*shape)
    norms = [nn.BatchNorm2d if isinstance(layer, nn.Conv2d) else nn.BatchNorm1d for layer in layers[:-1]]
    modules: list[nn.Module] = [layers[0]]
    for norm, before, layer in zip(norms, layers, layers[1:], strict=False):
        modules += [nn.ReLU(), norm(len(before.weight), eps=EPSILON, affine=False), layer]
    want = nn.Sequential(*modules, nn.Flatten()).double()(x)
    found, statistics = bn_forward(layers, x, through=through)
    torch.testing.assert_close(found, want)
    assert len(statistics) == len(layers) - 1
    parameters = [layers[0].weight]
    with_statistics = torch.autograd.grad(want.square().sum(), parameters)[0]
    own = torch.autograd.grad(found.square().sum(), parameters)[0]
    assert torch.allclose(own, with_statistics) is through


@NETWORKS
def test_the_merged_network_computes_the_same(make: object, shape: tuple[int, ...]) -> None:
    assert callable(make)
    layers, x = make(), drawn(*shape)
    output, statistics = bn_forward(layers, x)
    network = merged_network(layers, statistics)
    torch.testing.assert_close(network(x), output)
    assert [name for name, module in network.named_children() if hasattr(module, "weight")] == [
        str(2 * n) for n in range(len(layers))
    ]


def test_the_hypotheses_are_bnps_options_and_the_first_layer_is_left_out() -> None:
    network = merged_network(dense(), bn_forward(dense(), drawn(9, 6))[1])
    bnp = make_bnp(network)
    assert list(bnp.layers) == ["2", "4"]
