"""Data sets that torchvision downloads and reads: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from filelock import FileLock
from torch import Tensor
from torchvision import datasets as torchvision_datasets

from bnpbench.datasets.storage import VARIABLE, prepare
from bnpbench.errors import DataError

OFFLINE = "BNPBENCH_OFFLINE"


@dataclass(frozen=True)
class Stored:
    """A data set of files.

    Attributes:
        title: its name, as people write it.
        reader: torchvision's class.
        folder: where its files lie under the root.
        files: their names and MD5 sums.
        megabytes: size of the download.
        input: shape of one image.
        classes, train, test: numbers.
    """

    title: str
    reader: Any
    folder: str
    files: tuple[tuple[str, str], ...]
    megabytes: int
    input: tuple[int, ...]
    classes: int
    train: int
    test: int


def _cifar(reader: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, md5) for name, md5 in [*reader.train_list, *reader.test_list])


# torchvision knows the sums of MNIST's archives only, and checks them only after a download
STORED: dict[str, Stored] = {
    "mnist": Stored(
        "MNIST",
        torchvision_datasets.MNIST,
        "MNIST/raw",
        (
            ("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
            ("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
            ("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
            ("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
        ),
        12,
        (1, 28, 28),
        10,
        60_000,
        10_000,
    ),
    "fashion-mnist": Stored(
        "Fashion-MNIST",
        torchvision_datasets.FashionMNIST,
        "FashionMNIST/raw",
        (
            ("train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
            ("train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9"),
            ("t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a"),
            ("t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965"),
        ),
        31,
        (1, 28, 28),
        10,
        60_000,
        10_000,
    ),
    "cifar10": Stored(
        "CIFAR-10",
        torchvision_datasets.CIFAR10,
        "cifar-10-batches-py",
        _cifar(torchvision_datasets.CIFAR10),
        170,
        (3, 32, 32),
        10,
        50_000,
        10_000,
    ),
    "cifar100": Stored(
        "CIFAR-100",
        torchvision_datasets.CIFAR100,
        "cifar-100-python",
        _cifar(torchvision_datasets.CIFAR100),
        169,
        (3, 32, 32),
        100,
        50_000,
        10_000,
    ),
}


def how_to_get(name: str) -> str:
    """The advice at the end of every message about missing or damaged files."""
    return f"give its folder by --data-dir or {VARIABLE}, or run `bnpbench data get {name}`"


def absent(name: str, root: Path) -> str | None:
    """Why ``name`` cannot be loaded from ``root``: the first file that is not there; else None."""
    stored = STORED[name]
    folder = root / stored.folder
    lacking = [file for file, _ in stored.files if not (folder / file).is_file()]
    if not lacking:
        return None
    return f"{stored.title} is not under {root}: {stored.folder}/{lacking[0]} is missing; {how_to_get(name)}"


def download(name: str, root: Path, *, offline: bool = False) -> None:
    """Bring ``name`` under ``root`` by torchvision, unless it is there; announced on stderr.

    One process at a time: others wait at the file lock and then find the files.

    Raises:
        DataError: offline (by the argument or ``BNPBENCH_OFFLINE=1``), no network, or a folder that cannot be written.
    """
    stored = STORED[name]
    if (reason := absent(name, root)) is None:
        return
    if offline or os.environ.get(OFFLINE, "") not in ("", "0"):
        raise DataError(f"{reason} (offline: nothing is downloaded)")
    prepare(root)
    with FileLock(root / f".{name}.lock"):
        if absent(name, root) is None:
            return
        print(f"bnpbench: fetching {stored.title} ({stored.megabytes} MB) to {root}", file=sys.stderr)
        try:
            stored.reader(root, download=True)
        except (URLError, OSError, RuntimeError) as error:
            raise DataError(
                f"{stored.title} could not be downloaded to {root} ({error}); {how_to_get(name)}"
            ) from error


def read(name: str, root: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images in [0, 1] and labels, test images and labels of ``name``, after checking every file's MD5 sum.

    Raises:
        DataError: a file is missing or damaged; names it.
    """
    if (reason := absent(name, root)) is not None:
        raise DataError(reason)
    stored = STORED[name]
    for file, md5 in stored.files:
        path = root / stored.folder / file
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if found != md5:
            raise DataError(
                f"{stored.title} is damaged: the MD5 sum of {path} is {found}, not {md5}; "
                f"remove the file, then {how_to_get(name)}"
            )
    return *_tensors(stored, root, train=True), *_tensors(stored, root, train=False)


def _tensors(stored: Stored, root: Path, *, train: bool) -> tuple[Tensor, Tensor]:
    source = stored.reader(root, train=train)
    images = torch.as_tensor(source.data)  # (n, 28, 28) or (n, 32, 32, 3), uint8
    images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    return images.to(torch.float32, memory_format=torch.contiguous_format).div_(255), torch.as_tensor(source.targets)
