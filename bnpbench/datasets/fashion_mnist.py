"""Fashion-MNIST."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.stored import StoredImages


class FashionMnist(StoredImages):
    """Fashion-MNIST: 70,000 pieces of clothing of 28 x 28 pixels (Xiao et al. 2017)."""

    title: ClassVar[str] = "Fashion-MNIST"
    reader: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"
    megabytes: ClassVar[int] = 31
    known: ClassVar[DataShape] = DataShape((1, 28, 28), 10, 60_000, 10_000)
    files: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }
    kind: Literal["fashion-mnist"]
