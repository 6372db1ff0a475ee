"""The examples of a cell: resident on its device, or streamed by worker processes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bnpbench.reading.stream import Stream
from bnpbench.suite import Settings

EVALUATION_BATCH = 1000
RATE_IMAGES = 2000  # over which the input rate is measured
MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}

WHOLE = slice(None)

Pairs = Iterable[tuple[Tensor, Tensor]]
"""Images and labels, batch by batch."""


class Examples(Protocol):
    """What a trainer needs of its data.

    Attributes:
        input_shape: of one example, as the network reads it.
        classes: number of them.
        labels: of the training examples, (examples,) int64 on the device.
        test_examples: how many the test set has.
    """

    input_shape: tuple[int, ...]
    classes: int
    labels: Tensor
    test_examples: int

    def training(self, order: Tensor, batch_size: int, seed: int, part: slice = WHOLE) -> Iterable[tuple[Tensor, ...]]:
        """Arguments of the step, one tuple a batch: indices, and images and labels where these are streamed.

        Args:
            order: of the examples, a multiple of ``batch_size``.
            seed: of random crops, where the stream makes them.
            part: of every batch.
        """

    def test(self) -> Pairs:
        """The whole test set."""

    def validation(self) -> Pairs | None:
        """What was held out of the training set, if anything."""


class Resident:
    """All examples as tensors on the device, in the shape and the memory format that the network reads."""

    def __init__(self, settings: Settings, root: Path, device: torch.device) -> None:
        data = settings.dataset.tensors(
            root,
            train_limit=settings.train_limit,
            validation=settings.validation,
            seed=settings.seed,
        )

        def images(x: Tensor) -> Tensor:
            read = x.reshape(len(x), *settings.network.reads(tuple(x.shape[1:])))
            return read.contiguous(memory_format=MEMORY_FORMATS[settings.memory_format]).to(device)

        self.images, self.labels = images(data.train_x), data.train_y.to(device)
        self.input_shape = tuple(self.images.shape[1:])
        self.classes = settings.dataset.found(root).classes
        self._test = images(data.test_x), data.test_y.to(device)
        self.test_examples = len(data.test_y)
        held_x, held_y = data.validation_x, data.validation_y
        self._validation = None if held_x is None or held_y is None else (images(held_x), held_y.to(device))

    def training(self, order: Tensor, batch_size: int, seed: int, part: slice = WHOLE) -> Iterable[tuple[Tensor, ...]]:
        return ((index,) for index in order.to(self.labels.device).view(-1, batch_size)[:, part].unbind())

    def test(self) -> Pairs:
        return _batches(*self._test)

    def validation(self) -> Pairs | None:
        return None if self._validation is None else _batches(*self._validation)


class Streamed:
    """Images that are decoded, and augmented, by worker processes while the device computes.

    They come in the shape that the network reads, as ``Resident``'s do.
    """

    def __init__(self, settings: Settings, root: Path, device: torch.device) -> None:
        self.streams = settings.dataset.open(
            root,
            device=device,
            augment=settings.augment != "none",
            memory_format=MEMORY_FORMATS[settings.memory_format],
            train_limit=settings.train_limit,
            validation=settings.validation,
            seed=settings.seed,
        )
        self.classes = self.streams.classes
        self.input_shape = settings.network.reads(settings.dataset.found(root).input)
        self.labels = self.streams.train.labels.to(device)
        self.test_examples = len(self.streams.test)
        self._batch_size = settings.batch_size

    @cached_property
    def rate(self) -> float:
        """Images a second that the workers deliver, measured when it is first asked for."""
        return self.streams.train.rate(RATE_IMAGES, self._batch_size)

    def training(self, order: Tensor, batch_size: int, seed: int, part: slice = WHOLE) -> Iterable[tuple[Tensor, ...]]:
        indices = order.to(self.labels.device).view(-1, batch_size)[:, part].unbind()
        batches = self._read(self.streams.train.batches(order, batch_size, seed, part))
        return ((index, *batch) for index, batch in zip(indices, batches, strict=True))

    def test(self) -> Pairs:
        return self._whole(self.streams.test)

    def validation(self) -> Pairs | None:
        return None if self.streams.validation is None else self._whole(self.streams.validation)

    def _whole(self, stream: Stream) -> Pairs:
        return self._read(stream.batches(torch.arange(len(stream)), EVALUATION_BATCH // 4))

    def _read(self, batches: Pairs) -> Iterator[tuple[Tensor, Tensor]]:
        return ((images.reshape(len(images), *self.input_shape), labels) for images, labels in batches)


def examples_of(settings: Settings, root: Path, device: torch.device) -> Examples:
    """The examples of a cell on ``device``; ``root`` is the folder of the data sets. Raises DataError."""
    return (Streamed if settings.dataset.streamed else Resident)(settings, root, device)


def blank(
    settings: Settings, examples: int, input_shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """A batch without values: examples and labels as a cell's are.

    Args:
        settings: of the cell.
        examples: how many.
        input_shape: of one, as the network reads it.
        device: such as ``meta``.
    """
    tokens = settings.network.tokens
    inputs = torch.empty(examples, *input_shape, dtype=torch.int64 if tokens else None, device=device)
    return inputs, torch.empty(examples, *(input_shape if tokens else ()), dtype=torch.int64, device=device)


def data_key(settings: Settings) -> Hashable:
    """What decides the examples on a device: cells that agree in it can share them."""
    return *settings.only("data"), settings.seed if settings.validation else None


def _batches(images: Tensor, labels: Tensor) -> Pairs:
    """Labels are copies: a metric may write to them, and other cells are judged by the same ones."""
    batches = zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True)
    return ((x, y.clone()) for x, y in batches)
