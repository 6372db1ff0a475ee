"""The Hessian of one dense neuron: its factors, and the neuron inside its network."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.theory.hessian import (
    diagonal_curvature,
    exact_hessian,
    extended,
    hessian_of,
    neuron_of,
    normalized,
    preconditioner,
)


@pytest.fixture
def rows() -> Tensor:
    return torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


X = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(8) % 3
LAYERS = pytest.mark.parametrize(("layer", "unit"), [(0, 2), (2, 0), (4, 1)])


def test_the_preconditioner_normalizes_the_rows(rows: Tensor) -> None:
    """[e, H] P = [1, (h - mu) / sigma], each column but the first of mean 0 and variance 1."""
    found = extended(rows) @ preconditioner(rows)
    torch.testing.assert_close(found, normalized(rows))
    torch.testing.assert_close(found.mean(0), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(found.square().mean(0), torch.ones(4, dtype=torch.float64))


def test_a_quadratic_has_the_hessian_by_hand() -> None:
    h = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    curvature = diagonal_curvature(torch.tensor([2.0, 4.0], dtype=torch.float64))
    assert curvature.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert hessian_of(h, curvature).tolist() == [[1.0 + 18.0, 2.0 - 6.0], [2.0 - 6.0, 4.0 + 2.0]]
    found = exact_hessian(lambda w: 0.5 * (w @ h.T @ curvature @ h @ w), torch.tensor([0.3, -2.0], dtype=torch.float64))
    torch.testing.assert_close(found, hessian_of(h, curvature))


@LAYERS
def test_a_neurons_loss_is_the_networks_with_its_weights_changed(network: nn.Sequential, layer: int, unit: int) -> None:
    neuron = neuron_of(network, layer, unit, X, LABELS, "here")
    assert neuron.loss(neuron.parameters).item() == pytest.approx(F.cross_entropy(network(X), LABELS).item())
    changed = neuron.parameters + 0.3
    with torch.no_grad():
        network[layer].bias[unit], network[layer].weight[unit] = changed[0], changed[1:]
    assert neuron.loss(changed).item() == pytest.approx(F.cross_entropy(network(X), LABELS).item())


@LAYERS
def test_second_derivatives_are_those_of_each_example(network: nn.Sequential, layer: int, unit: int) -> None:
    neuron = neuron_of(network, layer, unit, X, LABELS, "here")
    a, step = extended(neuron.rows) @ neuron.parameters, 1e-4
    by_differences = (neuron.losses(a + step) - 2 * neuron.losses(a) + neuron.losses(a - step)) / step**2
    torch.testing.assert_close(neuron.second_derivatives(), by_differences, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(neuron.full_curvature(), diagonal_curvature(neuron.second_derivatives()))
