"""MNIST."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.stored import StoredImages


class Mnist(StoredImages):
    """MNIST: 70,000 handwritten digits of 28 x 28 pixels (LeCun et al. 1998)."""

    title: ClassVar[str] = "MNIST"
    reader: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"
    megabytes: ClassVar[int] = 12
    known: ClassVar[DataShape] = DataShape((1, 28, 28), 10, 60_000, 10_000)
    files: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    kind: Literal["mnist"]
