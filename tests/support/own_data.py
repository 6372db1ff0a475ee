"""Data as users have them, and a suite about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SUITE = """
name = "own"
[train]
dataset = DATA
network = { kind = "fc", hidden = [9] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 5
epochs = 2
threads = 1
[sweep]
method = ["vanilla", "bnp"]
"""


def suite(folder: Path, data: str, text: str = SUITE) -> Path:
    """A suite about these data, as TOML."""
    folder.mkdir(exist_ok=True)
    path = folder / "own.toml"
    path.write_text(text.replace("DATA", data))
    return path


def arrays(seed: int = 0, shape: tuple[int, ...] = (8, 8), **others: Any) -> dict[str, Any]:
    """Three classes of bytes, 30 and 12 of them."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for part, count in (("train", 30), ("test", 12)):
        found[f"x_{part}"] = random.integers(0, 256, (count, *shape), dtype=np.uint8)
        found[f"y_{part}"] = np.arange(count) % 3
    return {**found, **others}


def save(path: Path, **options: Any) -> Path:
    """These in a file."""
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays(**options))
    return path


def draw(folder: Path, count: int, size: tuple[int, int] = (10, 8), mode: str = "RGB", seed: int = 0) -> None:
    """So many images of noise, of this width and height."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    bands = len(Image.new(mode, (1, 1)).getbands())
    for number in range(count):
        pixels = random.integers(0, 256, (size[1], size[0], bands), dtype=np.uint8)
        Image.fromarray(pixels.squeeze(), mode).save(folder / f"{number}.png")
