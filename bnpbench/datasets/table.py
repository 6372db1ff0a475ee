"""The table of data sets: one entry a kind, each with its shape, its loader and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bnpbench.datasets import files, generated, imagefolder, storage, stored
from bnpbench.datasets.splits import Data, split, standardized
from bnpbench.errors import DataError
from bnpbench.suite.vocabulary import DatasetOptions, ImageNet, StoredData, Synthetic

Tensors = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """What a data set is before anything is loaded: shape of one example, number of classes, of examples."""

    input: tuple[int, ...]
    classes: int
    train: int
    test: int


@dataclass(frozen=True)
class Dataset:
    """One entry.

    Attributes:
        describe: the shape, from the options and the root.
        load: training examples and labels, test examples and labels, from the options and the root;
            absent: it is not resident but streamed (``bnpbench.datasets.open_streams``).
        source: what it is and where it comes from, in a line.
        fetch: brings it under a root (the others: offline, replace damaged files); absent: it cannot be downloaded.
    """

    describe: Callable[[Any, Path], Shape]
    load: Callable[[Any, Path], Tensors] | None
    source: str
    fetch: Callable[[Path, bool, bool], None] | None = None


@dataclass(frozen=True)
class Entry:
    """A line of ``bnpbench data``.

    Attributes:
        name: of the data set.
        source: where it comes from.
        missing: which file is not there, if one is not.
        damaged: what is wrong with files that are all there, if something is.
        downloadable: whether ``bnpbench data get`` can fetch it.
    """

    name: str
    source: str
    missing: str | None
    damaged: str | None
    downloadable: bool


def describe(options: DatasetOptions, root: Path | None = None) -> Shape:
    """The shape of a data set, without loading it.

    Args:
        options: which data set.
        root: where the stored ones lie; only ``imagenet`` looks there, to count its files.

    Raises:
        DataError: ``imagenet`` is not under ``root``.
    """
    return DATASETS[options.kind].describe(options, storage.root(root))


def streamed(options: DatasetOptions) -> bool:
    """Whether the data set comes as ``open_streams`` instead of ``load``."""
    return DATASETS[options.kind].load is None


def load(
    options: DatasetOptions,
    root: Path | None,
    *,
    train_limit: int | None = None,
    validation: float = 0.0,
    seed: int = 0,
) -> Data:
    """The tensors of a data set on the CPU.

    Args:
        options: which data set.
        root: where the stored ones lie (``bnpbench.datasets.root``); not needed by the others.
        train_limit: how many training examples to keep; see ``bnpbench.datasets.splits``.
        validation: share of the training examples to hold out first.
        seed: draws the examples held out.

    Raises:
        DataError: files are missing or damaged, the limits do not fit, the data set is streamed, or it is not what its
            shape says.
    """
    read = DATASETS[options.kind].load
    if read is None:
        raise DataError(f"the data set {options.kind!r} is not kept in memory but streamed")
    tensors = read(options, storage.root(root))
    if (fault := _contradiction(tensors, describe(options, root))) is not None:
        raise DataError(f"the data set {options.kind!r} does not load what its shape says: {fault}")
    data = split(*tensors, train_limit=train_limit, validation=validation, seed=seed)
    return standardized(data, options.mean, options.std) if isinstance(options, StoredData) else data


def missing(options: DatasetOptions, root: Path) -> str | None:
    """Why the data set cannot be loaded from ``root``, with what to do; None if it can."""
    return files.unfit(options.kind, root)


def fetch(name: str, root: Path, *, offline: bool = False, replace: bool = False) -> None:
    """Bring the data set ``name`` under ``root`` if it is not there; ``replace`` what is there and damaged.

    Raises:
        DataError: unknown, damaged, not downloadable, offline, or the download failed.
    """
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    if dataset.fetch is not None:
        dataset.fetch(root, offline, replace)
    elif (reason := files.unfit(name, root)) is not None:
        raise DataError(reason)


def catalogue(root: Path) -> tuple[Entry, ...]:
    """Every data set, and whether it is under ``root``, whole."""
    found = []
    for name, dataset in DATASETS.items():
        missing = files.missing(name, root)
        damaged = None if missing else files.damaged(name, root)
        found.append(Entry(name, dataset.source, missing, damaged, dataset.fetch is not None))
    return tuple(found)


def _contradiction(tensors: Any, shape: Shape) -> str | None:
    """Where what was loaded is not as described, as parameters and operations are counted by; None where it is."""
    if not (isinstance(tensors, tuple) and len(tensors) == 4 and all(isinstance(each, Tensor) for each in tensors)):
        return "it gives no tuple of four tensors: training examples, their labels, test examples, their labels"
    for part, count, examples, labels in (("train", shape.train, *tensors[:2]), ("test", shape.test, *tensors[2:])):
        # float32; under another default type a generated data set comes in that
        floats, wholes = {torch.float32, torch.get_default_dtype()}, {torch.int64}
        for name, found, size, kinds in (
            ("examples", examples, (count, *shape.input), floats),
            ("labels", labels, (count,), wholes),
        ):
            if tuple(found.shape) != size or found.dtype not in kinds:
                wanted = torch.float32 if kinds is floats else torch.int64
                told = f"{found.dtype} of shape {tuple(found.shape)}, not {wanted} of shape {size}"
                return f"{part} {name} are {told}"
        if count and not 0 <= labels.min() <= labels.max() < shape.classes:
            low, high = int(labels.min()), int(labels.max())
            return f"{part} labels go from {low} to {high}, not from 0 to {shape.classes - 1}"
    return None


def _stored(name: str) -> Dataset:
    known = files.STORED[name]

    def describe(options: Any, root: Path) -> Shape:
        entry = files.STORED[name]
        return Shape(entry.input, entry.classes, entry.train, entry.test)

    return Dataset(
        describe=describe,
        load=lambda options, root: stored.read(name, root),
        source=f"{known.title} by torchvision ({known.megabytes} MB), under {known.folder}/",
        fetch=lambda root, offline, replace: stored.download(name, root, offline=offline, replace=replace),
    )


def _synthetic_shape(options: Synthetic, root: Path) -> Shape:
    return Shape(options.shape, options.classes, options.train, options.test)


def _imagenet_shape(options: ImageNet, root: Path) -> Shape:
    imagefolder.check_classes(root)
    (classes, train), (_, test) = (imagefolder.listing(root, part) for part in files.PARTS)
    return Shape((3, options.size, options.size), len(classes), len(train), len(test))


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        describe=lambda options, root: Shape((1, 8, 8), 10, 1437, 360),
        load=lambda options, root: generated.digits(),
        source="scikit-learn's handwritten digits, part of scikit-learn",
    ),
    "mnist": _stored("mnist"),
    "fashion-mnist": _stored("fashion-mnist"),
    "cifar10": _stored("cifar10"),
    "cifar100": _stored("cifar100"),
    "synthetic": Dataset(
        describe=_synthetic_shape,
        load=lambda options, root: generated.synthetic(options),
        source="Gaussian classes, generated",
    ),
    "imagenet": Dataset(
        describe=_imagenet_shape,
        load=None,
        source=f"an image folder in ImageNet's layout, under {files.IMAGENET}/train/ and {files.IMAGENET}/val/",
    ),
}
