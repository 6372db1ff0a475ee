"""Folders with images, one a class: which there are, and whether they are laid out as they should be. No torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bnpbench.text import plural

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
Samples = tuple[tuple[str, int], ...]
"""Paths of images, each with the number of its class."""


def listed(folder: Path) -> tuple[tuple[str, ...], Samples]:
    """The classes in a folder, sorted by name, and their images in the order of torchvision's ImageFolder.

    Raises:
        FileNotFoundError: no such folder, no folder of a class, or a class without images.
    """
    with os.scandir(folder) as entries:
        classes = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    if not classes:
        raise FileNotFoundError(f"there is no folder of a class in {folder}")
    samples = [(path, label) for label, name in enumerate(classes) for path in _images(folder / name)]
    if empty := set(range(len(classes))) - {label for _, label in samples}:
        raise FileNotFoundError(
            f"found no image in the class {classes[min(empty)]!r}; files that end in {', '.join(EXTENSIONS)} are read"
        )
    return classes, tuple(samples)


def odd_layout(folder: Path, layout: str) -> str | None:
    """What is wrong with a folder of classes, with what to do; None where nothing is.

    Folders one level too deep would be read as one class, and whatever is trained on it is right.

    Args:
        folder: that holds a folder for each class.
        layout: how the images should lie, for the message.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(folder) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    for name in classes:
        with os.scandir(folder / name) as entries:
            inner = next((entry for entry in entries if entry.is_file()), None)  # one look, where files come first
        if inner is None and (deeper := sorted(path.name for path in (folder / name).iterdir() if path.is_dir())):
            return (
                f"{folder / name} holds no images but folders ({deeper[0]!r}): if these are the classes, move them one "
                f"level up; the layout is {layout}"
            )
    if len(classes) < 2:
        there = f"only the class folder {classes[0]!r}" if classes else "no class folder"
        return f"{folder} has {there}, and it takes two classes to tell apart; the layout is {layout}"
    return None


def other_classes(folder: Path, parts: Sequence[str], classes: Sequence[Sequence[str]]) -> str | None:
    """Where two parts of a folder have not the same classes; None where they have.

    Args:
        folder: that holds both.
        parts: their names.
        classes: of each.
    """
    train, test = map(set, classes)
    if train == test:
        return None
    odd = sorted(train ^ test)[0]
    there, not_there = parts if odd in train else parts[::-1]
    count = f"{len(train)} {plural(len(train), 'class', 'classes')}"
    return (
        f"{folder} has {count} in {parts[0]} and {len(test)} in {parts[1]}, and they must be the same: "
        f"{odd!r} is in {there} and not in {not_there}"
    )


def _images(folder: Path) -> list[str]:
    return [
        os.path.join(place, name)
        for place, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(EXTENSIONS)
    ]
