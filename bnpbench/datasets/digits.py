"""scikit-learn's handwritten digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.datasets.base import DataShape, Images

if TYPE_CHECKING:
    from bnpbench.datasets.base import Tensors


class Digits(Images):
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels in [0, 1]: 1,437 train, 360 test.

    The split is fixed and needs no random numbers: the images are sorted by class (stably, so each
    class keeps scikit-learn's order), and every fifth, from the first on, is a test image. So each
    class gives a fifth of its images to the test set. Both sets are in scikit-learn's order.
    """

    imports: ClassVar[tuple[str, ...]] = ("sklearn.datasets",)
    kind: Literal["digits"]

    @classmethod
    def whence(cls) -> str:
        return "scikit-learn's handwritten digits, part of scikit-learn"

    def describe(self) -> DataShape:
        return DataShape((1, 8, 8), 10, 1437, 360)

    def load(self) -> Tensors:
        import torch
        from sklearn.datasets import load_digits

        bunch = load_digits()
        x = torch.from_numpy(bunch.images).to(torch.float32).div(16).unsqueeze(1)
        y = torch.from_numpy(bunch.target).to(torch.int64)
        test = torch.zeros(len(y), dtype=torch.bool)
        test[torch.sort(y, stable=True).indices[::5]] = True
        return x[~test], y[~test], x[test], y[test]
