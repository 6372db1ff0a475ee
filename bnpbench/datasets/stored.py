"""Data sets that torchvision downloads and reads: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from filelock import FileLock
from torch import Tensor
from torchvision import datasets as torchvision_datasets

from bnpbench.datasets.files import STORED, how_to_get, missing, unfit
from bnpbench.datasets.storage import is_offline, prepare
from bnpbench.errors import DataError

READERS: dict[str, Any] = {
    "mnist": torchvision_datasets.MNIST,
    "fashion-mnist": torchvision_datasets.FashionMNIST,
    "cifar10": torchvision_datasets.CIFAR10,
    "cifar100": torchvision_datasets.CIFAR100,
}


def download(name: str, root: Path, *, offline: bool = False, replace: bool = False) -> None:
    """Bring ``name`` under ``root`` by torchvision, unless it is there; announced on stderr.

    It is downloaded beside its place and its files are moved there when their MD5 sums are right: whoever finds a
    file finds it whole. One process at a time: others wait at the file lock and then find the files.

    Args:
        name: of the data set.
        root: folder of the data sets.
        offline: download nothing.
        replace: download files again that are there and damaged.

    Raises:
        DataError: files are damaged and not to be replaced, offline (by the argument or ``BNPBENCH_OFFLINE=1``), no
            network, or a folder that cannot be written.
    """
    if (reason := unfit(name, root)) is None:
        return
    if missing(name, root) is None and not replace:
        raise DataError(reason)
    if is_offline(offline):
        raise DataError(f"{reason} (offline: nothing is downloaded)")
    prepare(root)
    with FileLock(root / f".{name}.lock"):
        if unfit(name, root) is not None:
            _fetch(name, root)


def _fetch(name: str, root: Path) -> None:
    stored, beside = STORED[name], root / f".{name}.partial"
    print(f"bnpbench: fetching {stored.title} ({stored.megabytes} MB) to {root}", file=sys.stderr)
    shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
    try:
        beside.mkdir()
        READERS[name](beside, download=True)
        if (reason := unfit(name, beside)) is not None:
            raise RuntimeError(reason)
        (root / stored.folder).mkdir(parents=True, exist_ok=True)
        for file, _ in stored.files:
            os.replace(beside / stored.folder / file, root / stored.folder / file)
    except (URLError, OSError, RuntimeError) as error:
        raise DataError(f"{stored.title} could not be downloaded to {root} ({error}); {how_to_get(name)}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read(name: str, root: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images in [0, 1] and labels, test images and labels of ``name``, after checking every file's MD5 sum.

    Raises:
        DataError: a file is missing or damaged; names it.
    """
    if (reason := unfit(name, root)) is not None:
        raise DataError(reason)
    reader = READERS[name]
    return *_tensors(reader(root, train=True)), *_tensors(reader(root, train=False))


def _tensors(source: Any) -> tuple[Tensor, Tensor]:
    images = torch.as_tensor(source.data)  # (n, 28, 28) or (n, 32, 32, 3), uint8
    images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    return images.to(torch.float32, memory_format=torch.contiguous_format).div_(255), torch.as_tensor(source.targets)
