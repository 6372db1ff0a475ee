"""scikit-learn's digits."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from sklearn.datasets import load_digits

from bnpbench.datasets import digits
from tests.support.kinds import made


def options(value: Any) -> Any:
    return made("dataset", value)


def test_digits_are_scikit_learns_split_by_class() -> None:
    data = options("digits").tensors(None)
    assert data.train_x.shape == (1437, 1, 8, 8)
    assert data.test_x.shape == (360, 1, 8, 8)
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    bunch = load_digits()
    images, labels = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    ours = [(label, *image.mul(16).flatten().tolist()) for image, label in zip(images, labels.tolist(), strict=True)]
    theirs = [(label, *row) for row, label in zip(bunch.data.tolist(), bunch.target.tolist(), strict=True)]
    assert sorted(ours) == sorted(theirs)
    shares = data.test_y.bincount() / (data.test_y.bincount() + data.train_y.bincount())
    assert shares.sub(0.2).abs().max() < 0.005


def test_the_digits_split_is_fixed() -> None:
    """The split is part of what every published number means."""
    data = options("digits").tensors(None)
    assert data.test_y[:12].tolist() == [0, 2, 4, 7, 1, 6, 8, 9, 5, 3, 0, 2]
    digest = hashlib.sha256(data.test_x.mul(16).byte().numpy().tobytes()).hexdigest()
    assert digest == "3c05733c55d710109b9a1878ea98f552bb9d33485cd2bddb57cbade1c3c55d6d"


def test_digits_are_the_same_where_scikit_learn_keeps_its_file_elsewhere() -> None:
    """They are read from its file, for its import takes a second; from a version without that file, by itself."""
    ours, theirs = digits._pixels_and_labels(), digits._pixels_and_labels("nowhere.csv.gz")  # two ways to one table
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.dtype == its.dtype
        assert (mine == its).all()
