"""Gaussian classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.kinds import made


def options(value: Any) -> Any:
    return made("dataset", value)


@pytest.mark.parametrize("shape", [(64,), (3, 8, 8)])
def test_synthetic_classes_are_gaussian_around_their_means(shape: tuple[int, ...]) -> None:
    synthetic = options({"kind": "synthetic", "shape": shape, "classes": 4, "train": 4000, "test": 400, "seed": 3})
    data = synthetic.tensors(None)
    described = synthetic.describe()
    assert (described.input, described.classes, described.train, described.test) == (shape, 4, 4000, 400)
    assert data.train_x.shape == (4000, *shape)
    assert data.test_x.shape == (400, *shape)
    assert data.train_y.bincount().tolist() == [1000] * 4
    means = torch.stack([data.train_x[data.train_y == label].mean(0) for label in range(4)])
    noise = data.train_x - means[data.train_y]
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    nearest = torch.cdist(data.test_x.flatten(1), means.flatten(1)).argmin(1)
    assert (nearest == data.test_y).float().mean() > 0.9


def test_synthetic_is_decided_by_its_seed() -> None:
    def load(seed: int) -> torch.Tensor:
        return options({"kind": "synthetic", "seed": seed, "train": 20}).tensors(None).train_x

    assert torch.equal(load(0), load(0))
    assert not torch.equal(load(0), load(1))
