"""What is known of a data set without loading it: shapes, classes, sizes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

from bnpbench.errors import SuiteError
from bnpbench.suite.plugins import DatasetPlugin
from bnpbench.suite.settings import Settings
from bnpbench.suite.vocabulary import ImageNet, StoredData, Synthetic


@dataclass(frozen=True)
class DataShape:
    """One example's shape (channels first), the number of classes, and how many examples there are."""

    input: tuple[int, ...]
    classes: int
    train: int
    test: int


DATASETS = {
    "digits": DataShape((1, 8, 8), 10, 1437, 360),
    "mnist": DataShape((1, 28, 28), 10, 60_000, 10_000),
    "fashion-mnist": DataShape((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": DataShape((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": DataShape((3, 32, 32), 100, 50_000, 10_000),
}
"""The data sets of fixed content."""


def data_shape(options: StoredData | Synthetic | ImageNet | DatasetPlugin) -> DataShape:
    """The shape of any data set; ImageNet's is that of ILSVRC 2012 at the size asked for.

    Raises:
        SuiteError: a plugin's ``shape()`` gives something else.
    """
    if isinstance(options, Synthetic):
        return DataShape(options.shape, options.classes, options.train, options.test)
    if isinstance(options, ImageNet):
        return DataShape((3, options.size, options.size), 1000, 1_281_167, 50_000)
    if isinstance(options, DatasetPlugin):
        return _told(options)
    return DATASETS[options.kind]


def _told(plugin: DatasetPlugin) -> DataShape:
    shape = plugin.shape()
    if isinstance(shape, DataShape):
        return shape
    code = getattr(inspect.unwrap(type(plugin).shape), "__code__", None)
    told = "give a bnpbench.suite.DataShape(input, classes, train, test)"
    raise SuiteError(
        f"{type(plugin).__name__}.shape gave {shape!r:.80}; {told}",
        file=code and Path(code.co_filename),
        line=code and code.co_firstlineno,
    )


def split_sizes(settings: Settings) -> tuple[int, int]:
    """Numbers of examples to train on and to validate on.

    The share ``validation`` of the whole training set is held out, rounded to a whole number of examples;
    of the rest at most ``train_limit`` are used.
    """
    whole = data_shape(settings.dataset).train
    validation = round(whole * settings.validation)
    return min(whole - validation, settings.train_limit or whole), validation
