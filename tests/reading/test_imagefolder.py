"""An image folder: its classes, its images, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from bnpbench.errors import DataError
from tests.support.imagefolders import CLASSES, SIZE, everything, lay_out, streams


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path, train=9, val=3)


def mode_of(path: str) -> str:
    with Image.open(path) as image:
        return image.mode


def corrupt(path: Path) -> None:
    path.write_bytes(b"this is no image")


def cut_short(path: Path) -> None:
    Image.effect_noise((200, 200), 50).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:2000])


def bomb(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path, "PNG")


def half_a_bomb(path: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(path, "PNG")  # PIL only warns of these


def test_test_images_are_torchvisions_grayscale_and_cmyk_among_them(root: Path) -> None:
    cut = v2.Compose(
        [v2.Resize(round(SIZE * 256 / 224)), v2.CenterCrop(SIZE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    theirs = ImageFolder(root / "imagenet/val", transform=cut)
    assert {mode_of(path) for path, _ in theirs.samples} == {"L", "CMYK", "RGB"}
    images, labels = everything(streams(root).test)
    for index, (image, label) in enumerate(theirs):
        torch.testing.assert_close(images[index], image.as_subclass(Tensor))
        assert labels[index] == label


@pytest.mark.filterwarnings("default::PIL.Image.DecompressionBombWarning")  # as outside of these tests
@pytest.mark.parametrize(
    ("damage", "words"),
    [(corrupt, "cannot be decoded"), (cut_short, "cannot be decoded"), (bomb, "bomb"), (half_a_bomb, "bomb")],
)
def test_a_file_that_cannot_be_decoded_is_named(root: Path, damage: Any, words: str) -> None:
    path = root / "imagenet/train" / CLASSES[1] / f"{CLASSES[1]}_4.JPEG"
    damage(path)
    with pytest.raises(DataError, match=words) as error:
        everything(streams(root).train)
    assert str(path) in str(error.value)


def test_classes_must_agree(root: Path) -> None:
    (root / "imagenet/val" / CLASSES[2]).rename(root / "imagenet/val/n99999999")
    with pytest.raises(DataError, match="n02102040") as error:
        streams(root)
    assert "in train and not in val" in str(error.value)


def test_a_class_without_images_is_an_error(root: Path) -> None:
    (root / "imagenet/train/n99999999").mkdir()
    with pytest.raises(DataError, match="n99999999"):
        streams(root)
