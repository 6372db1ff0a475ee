"""An image folder in ImageNet's layout, of small random images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from bnpbench.reading import imagefolder

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
