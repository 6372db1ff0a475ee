"""The files of the data sets that are not generated: their names and sums, and what is wrong with them. No torch."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from bnpbench.datasets.storage import VARIABLE

IMAGENET = "imagenet"
PARTS = ("train", "val")  # of an image folder


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


def unfit(name: str, root: Path) -> str | None:
    """Why the data set ``name`` cannot be read from ``root``, with what to do; None if it can be, or has no files."""
    return missing(name, root) or damaged(name, root)


def missing(name: str, root: Path) -> str | None:
    """Which file or folder of the data set ``name`` is not there, with what to do; None if all are, or it has none."""
    if name == IMAGENET:
        lacking = next((part for part in PARTS if not (root / IMAGENET / part).is_dir()), None)
        if lacking is None:
            return None
        return (
            f"ImageNet is not under {root}: the folder {IMAGENET}/{lacking} is missing; it cannot be downloaded "
            f"without an account: get it from https://image-net.org, lay it out as {_LAYOUT}, "
            f"and give the folder that holds it by --data-dir or {VARIABLE}"
        )
    if name not in STORED:
        return None
    stored = STORED[name]
    lacking = next((file for file, _ in stored.files if not (root / stored.folder / file).is_file()), None)
    if lacking is None:
        return None
    return f"{stored.title} is not under {root}: {stored.folder}/{lacking} is missing; {how_to_get(name)}"


def damaged(name: str, root: Path) -> str | None:
    """What is wrong with files that are all there: MD5 sums, or an image folder's layout; None if nothing is."""
    try:
        if name == IMAGENET:
            return next((fault for part in PARTS if (fault := _odd_layout(root / IMAGENET / part))), None)
        return _other_sum(STORED[name], name, root) if name in STORED else None
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror}); {how_to_get(name)}"


def _other_sum(stored: Stored, name: str, root: Path) -> str | None:
    for file, md5 in stored.files:
        path = root / stored.folder / file
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if found != md5:
            return (
                f"{stored.title} is damaged: the MD5 sum of {path} ({path.stat().st_size:,} bytes) is {found}, not "
                f"{md5}; fetch it again with `bnpbench data get {name}`, or give another folder by --data-dir or "
                f"{VARIABLE}"
            )
    return None


_LAYOUT = f"{IMAGENET}/train/CLASS/*.JPEG and {IMAGENET}/val/CLASS/*.JPEG"


def _odd_layout(folder: Path) -> str | None:
    """Folders one level too deep would be read as one class, and whatever is trained on it is right."""
    with os.scandir(folder) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    for name in classes:
        with os.scandir(folder / name) as entries:
            inner = next((entry for entry in entries if entry.is_file()), None)  # one look, where files come first
        if inner is None and (deeper := sorted(path.name for path in (folder / name).iterdir() if path.is_dir())):
            return (
                f"{folder / name} holds no images but folders ({deeper[0]!r}): if these are the classes, move them one "
                f"level up; the layout is {_LAYOUT}"
            )
    if len(classes) < 2:
        there = f"only the class folder {classes[0]!r}" if classes else "no class folder"
        return f"{folder} has {there}, and it takes two classes to tell apart; the layout is {_LAYOUT}"
    return None
