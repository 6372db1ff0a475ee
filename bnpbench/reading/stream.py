"""Images too many to be resident: decoded by worker processes, batch by batch."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from bnpbench.errors import DataError
from bnpbench.reading import imagefolder
from bnpbench.reading.splits import choose

Sample = tuple[Tensor, int] | DataError
Batch = tuple[Tensor, Tensor]


class Stream:
    """One part of an image folder as batches on a device.

    Decoding, cropping and flipping happen in ``workers`` processes, which stay alive from one pass to the
    next; pixels travel as bytes, through pinned memory where the device is CUDA, and become
    float32 in [0, 1] on the device. The same order and seed give the same batches for any number of workers.

    Args:
        samples: (path, class number) pairs.
        workers: processes that decode.
        size: pixels a side.
        random: crop and flip at random, else crop in the middle.
        device: where batches are delivered.
        memory_format: of the images delivered.
    """

    def __init__(
        self,
        samples: tuple[tuple[str, int], ...],
        *,
        workers: int,
        size: int,
        random: bool,
        device: torch.device,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.labels = torch.tensor([label for _, label in samples])
        self.device, self.memory_format = device, memory_format
        self._plan: list[list[tuple[int, int]]] = []
        self._loader: DataLoader[Sample] = DataLoader(
            imagefolder.Images(samples, size, random),
            batch_sampler=self._plan,
            collate_fn=_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            multiprocessing_context="forkserver" if workers else None,
            worker_init_fn=_leave_interrupts_to_the_parent,
            generator=torch.Generator(),  # or each pass would draw from torch's global one
        )

    def __len__(self) -> int:
        """Number of images."""
        return len(self.labels)

    def batches(self, order: Tensor, batch_size: int, seed: int = 0, part: slice = slice(None)) -> Iterator[Batch]:
        """Images (batch, 3, size, size) in float32 and labels (batch,), in the order given.

        Args:
            order: numbers of images, (count,) int64; a last batch may be short.
            batch_size: images a batch.
            seed: draws the crops and flips; give each epoch its own.
            part: of every batch that is delivered; its crops and flips are those it has in the whole batch.

        Raises:
            DataError: a file cannot be decoded; names it.
        """
        seeds = torch.randint(2**62, (len(order),), generator=torch.Generator().manual_seed(seed))
        pairs = list(zip(order.tolist(), seeds.tolist(), strict=True))
        self._plan[:] = [pairs[first : first + batch_size][part] for first in range(0, len(pairs), batch_size)]
        for batch in self._loader:
            if isinstance(batch, DataError):
                raise batch
            pixels, labels = (part.to(self.device, non_blocking=True) for part in batch)
            yield pixels.to(torch.float32, memory_format=self.memory_format).div_(255), labels

    def rate(self, images: int, batch_size: int) -> float:
        """Images a second that the workers deliver to a reader who does nothing else: the input rate.

        Measured over the first ``images`` images, after one batch that starts the workers.
        """
        order = torch.arange(min(images, len(self)))
        for _ in self.batches(order[:batch_size], batch_size):
            pass
        begin = time.perf_counter()
        delivered = sum(len(labels) for _, labels in self.batches(order, batch_size))
        return delivered / (time.perf_counter() - begin)


@dataclass(frozen=True)
class Streams:
    """The streams of a data set, and its number of classes."""

    train: Stream
    test: Stream
    validation: Stream | None
    classes: int


def open_streams(
    folder: Path,
    *,
    workers: int,
    size: int,
    device: torch.device,
    augment: bool,
    memory_format: torch.memory_format = torch.contiguous_format,
    train_limit: int | None = None,
    validation: float = 0.0,
    seed: int = 0,
) -> Streams:
    """An image folder as streams.

    Args:
        folder: that holds ``train`` and ``val``.
        workers, size: as of :class:`Stream`.
        device: where batches are delivered.
        augment: crop and flip training images at random.
        memory_format: of the images delivered.
        train_limit, validation, seed: as of ``splits.load``; validation images come from the training folder and are
            cropped in the middle.

    Raises:
        DataError: no such folder, other classes in ``val`` than in ``train``, or limits that do not fit.
    """
    imagefolder.check_classes(folder)
    classes, training = imagefolder.listing(folder / "train")
    kept, held_out = choose(len(training), train_limit=train_limit, validation=validation, seed=seed)

    def stream(samples: tuple[tuple[str, int], ...], *, random: bool = False) -> Stream:
        return Stream(samples, workers=workers, size=size, random=random, device=device, memory_format=memory_format)

    return Streams(
        train=stream(tuple(training[i] for i in kept.tolist()), random=augment),
        test=stream(imagefolder.listing(folder / "val")[1]),
        validation=stream(tuple(training[i] for i in held_out.tolist())) if len(held_out) else None,
        classes=len(classes),
    )


def _collate(samples: list[Sample]) -> tuple[Tensor, Tensor] | DataError:
    for sample in samples:
        if isinstance(sample, DataError):
            return sample
    images, labels = default_collate(samples)
    return images, labels


def _leave_interrupts_to_the_parent(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
