"""CIFAR-10."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.stored import StoredImages


class Cifar10(StoredImages):
    """CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes (Krizhevsky 2009)."""

    title: ClassVar[str] = "CIFAR-10"
    reader: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"
    megabytes: ClassVar[int] = 170
    known: ClassVar[DataShape] = DataShape((3, 32, 32), 10, 50_000, 10_000)
    files: ClassVar[dict[str, str]] = {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    }
    kind: Literal["cifar10"]
