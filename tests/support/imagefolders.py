"""An image folder in ImageNet's layout, of small random images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bnpbench.reading import imagefolder
from bnpbench.reading.stream import Stream, Streams
from tests.support.kinds import made

CPU = torch.device("cpu")
SIZE = 32
CLASSES = ["n01440764", "n01443537", "n02102040"]


def photo(random: np.random.Generator, mode: str = "RGB") -> Image.Image:
    width, height = (int(side) for side in random.integers(40, 90, 2))
    small = random.integers(0, 256, (5, 5, len(Image.new(mode, (1, 1)).getbands())), dtype=np.uint8)
    return Image.fromarray(small.squeeze(), mode).resize((width, height))


def lay_out(root: Path, **counts: int) -> Path:
    """Three classes of so many training and validation JPEGs; in each class one is grayscale and one CMYK."""
    random = np.random.default_rng(0)
    for part, count in counts.items():
        for name in CLASSES:
            folder = root / "imagenet" / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                mode = {0: "L", 1: "CMYK"}.get(index, "RGB")
                photo(random, mode).save(folder / f"{name}_{index}.JPEG", quality=95)
    imagefolder.listing.cache_clear()
    return root


def options(workers: int = 0, size: int = SIZE) -> Any:
    """An image folder's data set as a suite would have it."""
    return made("dataset", {"kind": "imagenet", "workers": workers, "size": size})


def streams(root: Path, workers: int = 0, **others: Any) -> Streams:
    """Its parts, opened for training."""
    return options(workers).open(root, device=CPU, **{"augment": True, **others})


def everything(stream: Stream, batch_size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """All images and labels of one part, in order."""
    images, labels = zip(*stream.batches(torch.arange(len(stream)), batch_size, seed), strict=True)
    return torch.cat(images), torch.cat(labels)
