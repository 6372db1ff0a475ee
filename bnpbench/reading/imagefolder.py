"""ImageNet's layout: a folder a class under ``train/`` and ``val/``, decoded one image at a time."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from bnpbench.errors import DataError
from bnpbench.reading.classes import Samples, listed, other_classes
from bnpbench.reading.parts import PARTS


@lru_cache(maxsize=8)  # listing 1.3 million files takes a while
def listing(folder: Path) -> tuple[tuple[str, ...], Samples]:
    """The classes of a part, sorted, and its (path, class number) pairs, as torchvision's ImageFolder gives them.

    Raises:
        DataError: no folder, or a class without images.
    """
    try:
        return listed(folder)
    except FileNotFoundError as error:
        raise DataError(f"{folder} is no image folder: {error}") from error


def check_classes(folder: Path) -> None:
    """Raise a DataError unless ``train`` and ``val`` in ``folder`` have the same classes."""
    fault = other_classes(folder, PARTS, [listing(folder / part)[0] for part in PARTS])
    if fault is not None:
        raise DataError(fault)


def decode(path: str) -> Image.Image:
    """The image of a file in RGB; grayscale, palette and CMYK images are converted, as torchvision does.

    Raises:
        DataError: the file is no image, is cut short, or unpacks to more pixels than
            ``PIL.Image.MAX_IMAGE_PIXELS`` (a decompression bomb); names the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return image.convert("RGB")
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is refused as a decompression bomb: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path} cannot be decoded ({error}); replace or remove the file") from error


class Images(Dataset[tuple[Tensor, int] | DataError]):
    """The images of one part of the folder, indexed by (number, seed of its random crop).

    Training images are scaled to a shorter side of 256/224 of ``size``, cropped at random to ``size`` and flipped
    at random (Krizhevsky et al. 2012, whose settings the paper follows); the others are cropped in the middle.
    An image that cannot be decoded comes back as its error, which reaches the training process whole:
    an error raised in a worker would arrive wrapped in the worker's traceback.

    Args:
        samples: (path, class number) pairs.
        size: pixels a side.
        random: crop and flip at random.
    """

    def __init__(self, samples: tuple[tuple[str, int], ...], size: int, random: bool) -> None:
        self.samples = samples
        cut = [v2.RandomCrop(size), v2.RandomHorizontalFlip()] if random else [v2.CenterCrop(size)]
        self.transform = v2.Compose([v2.Resize(round(size * 256 / 224)), *cut, v2.ToImage()])

    def __getitem__(self, at: tuple[int, int]) -> tuple[Tensor, int] | DataError:
        """Image (3, size, size) in uint8 and class of the sample ``at[0]``, its crop drawn from the seed ``at[1]``."""
        number, seed = at
        path, label = self.samples[number]
        try:
            image = decode(path)
        except DataError as error:
            return error
        with torch.random.fork_rng(devices=[]):  # the crop depends on its seed alone, not on the worker
            torch.manual_seed(seed)
            pixels: Tensor = self.transform(image)
        return pixels.as_subclass(Tensor), label
