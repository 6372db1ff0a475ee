"""CIFAR-100."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.stored import StoredImages


class Cifar100(StoredImages):
    """CIFAR-100: 60,000 colour images of 32 x 32 pixels in a hundred classes (Krizhevsky 2009)."""

    title: ClassVar[str] = "CIFAR-100"
    reader: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
    megabytes: ClassVar[int] = 169
    known: ClassVar[DataShape] = DataShape((3, 32, 32), 100, 50_000, 10_000)
    files: ClassVar[dict[str, str]] = {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    }
    kind: Literal["cifar100"]
