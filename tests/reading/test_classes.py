"""Folders of classes, beside torchvision's reading of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

from bnpbench.reading.classes import EXTENSIONS, listed, odd_layout, other_classes


def lay_out(folder: Path) -> Path:
    for name in ("b/2.png", "b/10.JPEG", "b/inner/1.png", "b/notes.txt", "a/x.webp", "a/.hidden.png", "C/y.tiff"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "not-a-class.png").touch()
    return folder


def test_classes_and_images_are_torchvisions(tmp_path: Path) -> None:
    theirs = ImageFolder(lay_out(tmp_path))
    assert listed(tmp_path) == (tuple(theirs.classes), tuple(theirs.samples))
    assert set(EXTENSIONS) == set(IMG_EXTENSIONS)


def test_what_holds_no_class_or_no_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder of a class"):
        listed(tmp_path)
    (lay_out(tmp_path) / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no image in the class 'empty'"):
        listed(tmp_path)


def test_layouts_that_would_be_misread(tmp_path: Path) -> None:
    assert odd_layout(lay_out(tmp_path / "good"), "CLASS/*.png") is None
    (tmp_path / "deep" / "images" / "a").mkdir(parents=True)
    assert "one level up; the layout is CLASS/*.png" in str(odd_layout(tmp_path / "deep", "CLASS/*.png"))
    (tmp_path / "one" / "a").mkdir(parents=True)
    (tmp_path / "one" / "a" / "x.png").touch()
    assert "only the class folder 'a'" in str(odd_layout(tmp_path / "one", "CLASS/*.png"))


def test_parts_have_the_same_classes(tmp_path: Path) -> None:
    assert other_classes(tmp_path, ("train", "test"), (["a", "b"], ["b", "a"])) is None
    told = other_classes(tmp_path, ("train", "test"), (["a"], ["a", "c"]))
    assert told is not None
    assert "'c' is in test and not in train" in told
