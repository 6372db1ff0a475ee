"""The files of the data sets that are not generated: their names, and which of them are not there. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bnpbench.datasets.storage import VARIABLE

IMAGENET = "imagenet"


@dataclass(frozen=True)
class Stored:
    """A data set of files.

    Attributes:
        title: its name, as people write it.
        folder: where its files lie under the root.
        files: their names and MD5 sums.
        megabytes: size of the download.
        input: shape of one image.
        classes, train, test: numbers.
    """

    title: str
    folder: str
    files: tuple[tuple[str, str], ...]
    megabytes: int
    input: tuple[int, ...]
    classes: int
    train: int
    test: int


STORED: dict[str, Stored] = {
    "mnist": Stored(
        "MNIST",
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
        "cifar-10-batches-py",
        (
            ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            ("data_batch_4", "634d18415352ddfa80567beed471001a"),
            ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            ("test_batch", "40351d587109b95175f43aff81a1287e"),
            ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
        ),
        170,
        (3, 32, 32),
        10,
        50_000,
        10_000,
    ),
    "cifar100": Stored(
        "CIFAR-100",
        "cifar-100-python",
        (
            ("train", "16019d7e3df5f24257cddd939b257f8d"),
            ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ("meta", "7973b15100ade9c7d40fb424638fde48"),
        ),
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


def missing(name: str, root: Path) -> str | None:
    """Why the files of the data set ``name`` cannot be read from ``root``, with what to do; None if they can be, or
    it has none."""
    if name == IMAGENET:
        return _no_image_folder(root)
    return _no_file(STORED[name], name, root) if name in STORED else None


def _no_file(stored: Stored, name: str, root: Path) -> str | None:
    folder = root / stored.folder
    lacking = [file for file, _ in stored.files if not (folder / file).is_file()]
    if not lacking:
        return None
    return f"{stored.title} is not under {root}: {stored.folder}/{lacking[0]} is missing; {how_to_get(name)}"


def _no_image_folder(root: Path) -> str | None:
    for part in ("train", "val"):
        if not (root / IMAGENET / part).is_dir():
            return (
                f"ImageNet is not under {root}: the folder {IMAGENET}/{part} is missing; it cannot be downloaded "
                f"without an account: get it from https://image-net.org, lay it out as {IMAGENET}/train/CLASS/*.JPEG "
                f"and {IMAGENET}/val/CLASS/*.JPEG, and give the folder that holds it by --data-dir or {VARIABLE}"
            )
    return None
