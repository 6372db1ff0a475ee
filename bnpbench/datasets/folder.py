"""Images in folders, one a class."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.own import DIGITS, Look, OwnImages
from bnpbench.errors import DataError
from bnpbench.fields import Positive
from bnpbench.reading.classes import Samples, listed, odd_layout, other_classes

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.datasets.base import Tensors

TRAIN, TESTS = "train", ("test", "val")
_LAYOUT = "train/CLASS/*.png and test/CLASS/*.png, or CLASS/*.png alone"


class Folder(OwnImages):
    """Images in folders, one a class, all kept in memory.

    Under ``train/`` and ``test/`` (or ``val/``), else of each class a share drawn by ``seed`` is the test set. With
    ``size`` the shorter side of an image becomes so long and its middle is cut out; without, all are of one size.
    """

    kind: Literal["folder"]
    size: Positive | None = None
    channels: Literal[1, 3] = 3
    test: Annotated[float, Field(gt=0, lt=1)] = 0.2
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def whence(cls) -> str:
        return 'images in folders, one a class, of a suite: { kind = "folder", path = "images" }'

    def look(self, place: Path) -> Look:
        parts = _parts(place, self.test, self.seed)
        images = (*parts.train, *parts.test)
        content = _content(place, tuple((str(path), *_state(path)) for path, _ in sorted(images)))
        height, width = _size(images, self.size, content)
        shape = DataShape((self.channels, height, width), parts.classes, len(parts.train), len(parts.test))
        return Look(shape, content)

    def examples(self, place: Path) -> Tensors:
        parts = _parts(place, self.test, self.seed)
        return *self._tensors(parts.train), *self._tensors(parts.test)

    def _tensors(self, samples: Samples) -> tuple[Tensor, Tensor]:
        import numpy as np
        import torch
        from PIL import Image, ImageOps

        from bnpbench.reading.imagefolder import decode

        _, height, width = self.describe().input
        x = torch.empty(len(samples), self.channels, height, width)
        for row, (path, _) in zip(x, samples, strict=True):
            image = decode(path)
            if self.channels == 1:
                image = image.convert("L")
            if self.size is not None:  # the shorter side, then the middle
                image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
            if image.size != (width, height):
                raise DataError(f"{path} is {image.width} x {image.height}, not {width} x {height}")
            pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).reshape(height, width, self.channels)
            row.copy_(pixels.permute(2, 0, 1))
        return x.div_(255), torch.tensor([label for _, label in samples])


class _Parts(NamedTuple):
    """Both parts, and the number of classes."""

    classes: int
    train: Samples
    test: Samples


def _parts(place: Path, share: float, seed: int) -> _Parts:
    """What is trained on and what is tested on."""
    try:
        if not place.is_dir():
            raise DataError(f"{place} is no folder; path is relative to the suite's folder")
        test = next((name for name in TESTS if (place / name).is_dir()), None)
        if not (place / TRAIN).is_dir():
            return _split(*_listed(place), share, seed)
        if test is None:
            raise DataError(
                f"{place} has {TRAIN}/, and neither {' nor '.join(f'{name}/' for name in TESTS)}: {_LAYOUT}"
            )
        (classes, trained), (others, tested) = _listed(place / TRAIN), _listed(place / test)
    except OSError as error:
        raise DataError(f"{error.filename or place} cannot be read ({error.strerror})") from error
    if (fault := other_classes(place, (TRAIN, test), (classes, others))) is not None:
        raise DataError(fault)
    return _Parts(len(classes), trained, tested)


def _listed(folder: Path) -> tuple[tuple[str, ...], Samples]:
    if (fault := odd_layout(folder, _LAYOUT)) is not None:
        raise DataError(fault)
    try:
        return listed(folder)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: {error}; put some there, or take the folder away") from error


def _split(classes: tuple[str, ...], samples: Samples, share: float, seed: int) -> _Parts:
    """The share of each class, at least one image, that a random order by seed and class begins with."""
    import numpy as np

    train, test = list[tuple[str, int]](), list[tuple[str, int]]()
    for label, name in enumerate(classes):
        own = [sample for sample in samples if sample[1] == label]
        if len(own) < 2:
            raise DataError(f"{own[0][0]} is the only image of {name!r}, and one is wanted on each side of the split")
        order = np.random.default_rng([seed, label]).permutation(len(own))
        held_out = set(order[: min(max(round(share * len(own)), 1), len(own) - 1)].tolist())
        train += [sample for place, sample in enumerate(own) if place not in held_out]
        test += [sample for place, sample in enumerate(own) if place in held_out]
    return _Parts(len(classes), tuple(train), tuple(test))


def _state(path: str) -> tuple[int, int]:
    """What changes when a file is written anew."""
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=8)
def _content(place: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    """First digits of a SHA-256 over the names and the bytes of all files."""
    total = hashlib.sha256()
    for path, _, _ in files:
        try:
            with open(path, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").digest()
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); replace or remove the file") from error
        total.update(os.fsencode(os.path.relpath(path, place)) + b"\0" + digest)
    return total.hexdigest()[:DIGITS]


@lru_cache(maxsize=8)
def _size(images: Samples, size: int | None, content: str) -> tuple[int, int]:
    """Height and width of an example, after a look at the beginning of every file."""
    from PIL import Image

    first: tuple[int, int] | None = None
    for path, _ in images:
        try:
            with Image.open(path) as image:
                width, height = image.size
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be decoded ({error}); replace or remove the file") from error
        first = first or (height, width)
        if size is None and (height, width) != first:
            raise DataError(
                f"{path} is {width} x {height} and {images[0][0]} {first[1]} x {first[0]}: say size = {min(first)}, "
                "or another, and all are brought to it"
            )
    assert first is not None  # no part is empty
    return first if size is None else (size, size)
