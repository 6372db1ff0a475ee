"""BNP of a network with layer normalization."""

from __future__ import annotations

from torch import nn

from tests.support.kinds import made
from tests.support.training import trainer


def test_it_is_layer_normalization_with_preconditioned_gradients() -> None:
    method = made("method", {"kind": "bnp+ln", "rho": 0.9, "eps": 1e-5})
    assert isinstance(method.layer(5, 0, "x"), nn.LayerNorm)
    assert method.layer(5, 0, "x").eps == 1e-5
    ours, plain = trainer(method="bnp+ln"), trainer(method="ln")
    assert ours.bnp is not None
    assert plain.bnp is None
    assert str(ours.model) == str(plain.model)
    assert ours.epoch()["train_loss"] != plain.epoch()["train_loss"]
