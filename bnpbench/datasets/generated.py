"""Data sets that need no file: scikit-learn's digits, and Gaussian classes."""

from __future__ import annotations

from math import prod, sqrt

import torch
from torch import Tensor

from bnpbench.suite.vocabulary import Synthetic

Tensors = tuple[Tensor, Tensor, Tensor, Tensor]

SEPARATION = 3.0  # of a class's mean from the origin, in standard deviations of the noise


def digits() -> Tensors:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels in [0, 1]: 1,437 train, 360 test.

    The split is fixed and needs no random numbers: the images are sorted by class (stably, so each
    class keeps scikit-learn's order), and every fifth, from the first on, is a test image. So each
    class gives a fifth of its images to the test set. Both sets are in scikit-learn's order.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).to(torch.float32).div(16).unsqueeze(1)
    y = torch.from_numpy(bunch.target).to(torch.int64)
    test = torch.zeros(len(y), dtype=torch.bool)
    test[torch.sort(y, stable=True).indices[::5]] = True
    return x[~test], y[~test], x[test], y[test]


def synthetic(options: Synthetic) -> Tensors:
    """Gaussian classes: a mean per class at distance about ``SEPARATION`` from 0, plus standard normal noise.

    Everything is drawn on the CPU from ``options.seed``; the classes come in turn, so they are balanced.
    """
    generator = torch.Generator().manual_seed(options.seed)
    means = torch.randn(options.classes, *options.shape, generator=generator)
    means *= SEPARATION / sqrt(prod(options.shape))

    def draw(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(count) % options.classes
        return means[labels] + torch.randn(count, *options.shape, generator=generator), labels

    return *draw(options.train), *draw(options.test)
