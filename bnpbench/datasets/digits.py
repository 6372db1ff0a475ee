"""scikit-learn's handwritten digits."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bnpbench.datasets.base import DataShape, Images

if TYPE_CHECKING:
    from bnpbench.datasets.base import Tensors

FILE = "datasets/data/digits.csv.gz"  # of scikit-learn, which reads it when it has imported scipy for a second


class Digits(Images):
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels in [0, 1]: 1,437 train, 360 test.

    The split is fixed and needs no random numbers: the images are sorted by class (stably, so each
    class keeps scikit-learn's order), and every fifth, from the first on, is a test image. So each
    class gives a fifth of its images to the test set. Both sets are in scikit-learn's order.
    """

    kind: Literal["digits"]

    @classmethod
    def whence(cls) -> str:
        return "scikit-learn's handwritten digits, part of scikit-learn"

    def describe(self) -> DataShape:
        return DataShape((1, 8, 8), 10, 1437, 360)

    def load(self) -> Tensors:
        import torch

        pixels, labels = _pixels_and_labels()
        x = torch.from_numpy(pixels).to(torch.float32).div(16).view(-1, 1, 8, 8)
        y = torch.from_numpy(labels).to(torch.int64)
        test = torch.zeros(len(y), dtype=torch.bool)
        test[torch.sort(y, stable=True).indices[::5]] = True
        return x[~test], y[~test], x[test], y[test]


def _pixels_and_labels(file: str = FILE) -> tuple[Any, Any]:
    """Images (n, 64) with values from 0 to 16, and labels (n,), as scikit-learn's ``load_digits`` gives them."""
    import numpy as np

    package = find_spec("sklearn")  # which imports nothing
    path = None if package is None or package.origin is None else Path(package.origin).parent / file
    if path is not None and path.is_file():
        with gzip.open(path, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        return table[:, :-1], table[:, -1].astype(int)
    from sklearn.datasets import load_digits  # of a version that keeps it elsewhere

    bunch = load_digits()
    return bunch.data, bunch.target
