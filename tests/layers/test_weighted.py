"""Which layers have weights that are drawn and preconditioned."""

from __future__ import annotations

from torch import nn

from bnpbench.bnp.lean import Linear
from bnpbench.layers import weighted


def test_dense_layers_and_convolutions_in_the_models_order() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.Sequential(nn.Conv1d(2, 2, 1), nn.Bilinear(2, 2, 2), nn.ConvTranspose2d(2, 2, 1)),
        nn.Embedding(3, 2),
        Linear(2, 3),
        nn.Conv3d(1, 1, 1),
    )
    assert [name for name, _ in weighted(model)] == ["0", "2.0", "4", "5"]
    assert [type(module) for _, module in weighted(model)] == [nn.Conv2d, nn.Conv1d, Linear, nn.Conv3d]


def test_a_layer_that_is_used_twice_is_listed_once() -> None:
    shared = nn.Linear(2, 2)
    assert [name for name, _ in weighted(nn.Sequential(shared, nn.ReLU(), shared))] == ["0"]
    assert [name for name, _ in weighted(shared)] == [""]
