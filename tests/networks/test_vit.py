"""The vision transformer."""

from __future__ import annotations

import pytest
import torch

from bnpbench.bnp import BNP
from tests.support.kinds import made
from tests.support.networks import network_of, parameters
from tests.support.training import trainer

SMALL = {"kind": "vit", "width": 16, "depth": 2, "heads": 2}
IMAGES = {"kind": "synthetic", "shape": (3, 16, 16), "train": 24, "test": 8, "classes": 3}


@pytest.mark.parametrize(("method", "norm", "norms"), [("vanilla", "first", 0), ("ln", "first", 5), ("ln", "last", 4)])
def test_number_of_parameters(method: str, norm: str, norms: int) -> None:
    block = (16 * 48 + 48) + (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16)
    by_hand = (3 * 16 * 16 + 16) + 2 * block + (16 * 10 + 10) + norms * 32
    assert parameters(network_of({**SMALL, "norm": norm}, method, (3, 16, 16))) == by_hand


def test_bnp_conditions_every_weight() -> None:
    model = network_of(SMALL, "vanilla", (3, 16, 16))
    bnp = BNP(model)
    assert not bnp.skipped
    assert sum(len(list(model.get_submodule(name).parameters())) for name in bnp.layers) == len(
        list(model.parameters())
    )


@pytest.mark.parametrize("norm", ["first", "last"])
@pytest.mark.parametrize("method", ["vanilla", "ln", "rmsnorm", "dyt", "bn", "gn", "bnp", "bnp+ln"])
def test_it_trains_under_each_method(method: str, norm: str) -> None:
    ours = trainer(
        dataset=IMAGES, network={**SMALL, "norm": norm}, method=method, batch_size=8,
        optimizer={"kind": "adamw", "lr": 0.01},
    )  # fmt: skip
    losses = [ours.epoch()["train_loss"] for _ in range(4)]
    assert losses[-1] < losses[0]


def test_patches_divide_the_images() -> None:
    network = made("network", SMALL)
    assert network.unreadable((3, 16, 18)) == "cuts images into patches of 4 x 4, which do not divide 18"
    assert "needs images" in str(network.unreadable((64,)))
    assert network.unreadable((1, 8, 8)) is None
    assert network_of(SMALL, "vanilla", (1, 8, 8))(torch.zeros(2, 1, 8, 8, device="meta")).shape == (2, 10)
