"""Where a network asks for a normalization, and the words for where that has no meaning."""

from __future__ import annotations

import torch
from torch import nn

from bnpbench.sites import Normalization, no_site, nothing_to_precondition, single_row, single_value


def test_a_normalization_is_what_its_maker_makes_for_that_place() -> None:
    asked: list[tuple[int, int, str]] = []

    def maker(features: int, spatial_dims: int, site: str) -> nn.Module:
        asked.append((features, spatial_dims, site))
        return nn.BatchNorm1d(features)

    made = Normalization("post", maker).make(7, 0, "hidden1")
    assert isinstance(made, nn.BatchNorm1d)
    assert asked == [(7, 0, "hidden1")]


def test_without_a_maker_nothing_is_put_there() -> None:
    x = torch.randn(3, 7)
    assert torch.equal(Normalization().make(7, 0, "hidden1")(x), x)
    assert not list(Normalization().make(7, 0, "hidden1").parameters())


def test_the_words_name_the_place_and_the_numbers() -> None:
    assert single_row("layer 'dense_norm'", 64, 1) == (
        "batch normalization over a single row: layer 'dense_norm' sees 1 row of 64 features at batch size 1"
    )
    assert single_value("layer 'hidden1_norm'") == (
        "normalization over a single value: layer 'hidden1_norm' sees 1 value at a time, of which it leaves a constant"
    )
    for preconditioned, other in ((False, "vanilla"), (True, "bnp")):
        assert no_site("mine", "ln", preconditioned) == (
            f"the network 'mine' asks for no normalization: 'ln' would be {other} under another name"
        )
    assert "no layer of the network 'mine' is preconditioned: 'bnp'" in nothing_to_precondition("mine", "bnp")
