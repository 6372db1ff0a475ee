"""Images in folders: both layouts, one size for all, and every fault with what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bnpbench.errors import DataError
from tests.support.command import called
from tests.support.kinds import made
from tests.support.own_data import draw, suite

CLASSES = ("cat", "dog", "emu")


def folder(path: Path, **options: Any) -> Any:
    return made("dataset", {"kind": "folder", "path": path.name, **options}).located(path.parent)


def read(path: Path, **options: Any) -> Any:
    return folder(path, **options).tensors(Path("nowhere"))


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """6 images a class to train on and 2 to test on."""
    for part, count in (("train", 6), ("test", 2)):
        for seed, name in enumerate(CLASSES):
            draw(tmp_path / "images" / part / name, count, seed=seed)
    return tmp_path / "images"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """10 images a class, not parted."""
    for seed, name in enumerate(CLASSES):
        draw(tmp_path / "images" / name, 10, seed=seed)
    return tmp_path / "images"


@pytest.mark.parametrize("name", ["test", "val"])
def test_parts_are_what_their_folders_hold(name: str, parted: Path) -> None:
    (parted / "test").rename(parted / name)
    shape, data = folder(parted).describe(), read(parted)
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, 8, 10), 3, 18, 6)
    with Image.open(parted / "train/dog/4.png") as image:
        pixels = np.asarray(image, dtype=np.float32) / 255
    torch.testing.assert_close(data.train_x[6 + 4], torch.tensor(pixels).permute(2, 0, 1))
    assert data.train_y.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert data.test_y.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_share_of_each_class_is_the_test_set(whole: Path) -> None:
    data = read(whole, test=0.3)
    assert data.test_y.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    everything = {tuple(image.flatten().tolist()) for image in (*data.train_x, *data.test_x)}
    assert len(everything) == 30
    again, other = read(whole, test=0.3), read(whole, test=0.3, seed=1)
    assert torch.equal(data.test_x, again.test_x)
    assert not torch.equal(data.test_x, other.test_x)
    assert read(whole, test=0.01).test_y.tolist() == [0, 1, 2]  # at least one


def test_images_of_all_sizes_are_brought_to_one(whole: Path) -> None:
    draw(whole / "cat", 1, size=(30, 20), seed=9)
    with pytest.raises(DataError, match=r"is 10 x 8 and .* 30 x 20: say size = 20"):
        folder(whole)
    assert folder(whole, size=6).describe().input == (3, 6, 6)
    assert read(whole, size=6).train_x.shape == (24, 3, 6, 6)


def test_the_middle_is_cut_out(tmp_path: Path) -> None:
    for value, name in enumerate(("left", "right")):
        pixels = np.zeros((4, 12, 3), dtype=np.uint8)
        pixels[:, 4:8] = 100 * (value + 1)  # the middle third
        for part in ("train", "test"):
            (tmp_path / "images" / part / name).mkdir(parents=True)
            Image.fromarray(pixels).save(tmp_path / "images" / part / name / "0.png")
    assert (read(tmp_path / "images", size=4).train_x * 255).amax((1, 2, 3)).tolist() == [100, 200]


def test_grey_images(whole: Path) -> None:
    for seed, name in enumerate(CLASSES):
        draw(whole / name, 10, mode="L", seed=seed)
    grey, colour = read(whole, channels=1), read(whole)
    assert grey.train_x.shape == (24, 1, 8, 10)
    torch.testing.assert_close(grey.train_x.expand(-1, 3, -1, -1), colour.train_x)


def test_another_image_is_other_content(whole: Path) -> None:
    before = folder(whole).content
    assert folder(whole).content == before
    draw(whole / "emu", 11, seed=5)
    assert folder(whole).content != before


@pytest.mark.regression
def test_another_image_of_the_same_name_and_size_is_other_content(whole: Path) -> None:
    path = next(whole.rglob("*.png"))
    picture = Image.new("RGB", (10, 8), (200, 0, 0))
    picture.save(path, format="BMP")
    before, size = folder(whole).content, path.stat().st_size
    picture.putpixel((3, 3), (0, 200, 0))
    picture.save(path, format="BMP")
    assert path.stat().st_size == size
    assert folder(whole).content != before


def _corrupt(path: Path) -> None:
    (path / "train/dog/3.png").write_bytes(b"this is no image")


def _empty_file(path: Path) -> None:
    (path / "test/emu/1.png").write_bytes(b"")


def _cut_short(path: Path) -> None:
    file = path / "train/dog/3.png"
    file.write_bytes(file.read_bytes()[:150])


def _empty_class(path: Path) -> None:
    for file in (path / "train/emu").iterdir():
        file.rename(file.with_suffix(".txt"))


def _other_class(path: Path) -> None:
    (path / "test/emu").rename(path / "test/owl")


def _no_test(path: Path) -> None:
    shutil.rmtree(path / "test")


def _too_deep(path: Path) -> None:
    (path / "train").rename(path.parent / "inner")
    (path / "train").mkdir()
    (path.parent / "inner").rename(path / "train/images")


def _one_class(path: Path) -> None:
    for part in ("train", "test"):
        for name in CLASSES[1:]:
            shutil.rmtree(path / part / name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_corrupt, "train/dog/3.png cannot be decoded"),
        (_empty_file, "test/emu/1.png cannot be decoded"),
        (_cut_short, "train/dog/3.png cannot be decoded"),
        (_empty_class, "found no image in the class 'emu'"),
        (_other_class, "'emu' is in train and not in test"),
        (_no_test, "has train/, and neither test/ nor val/"),
        (_too_deep, "move them one level up"),
        (_one_class, "only the class folder 'cat'"),
    ],
)
def test_what_is_wrong_is_named(damage: Callable[[Path], None], words: str, parted: Path) -> None:
    damage(parted)
    with pytest.raises(DataError, match=words):
        read(parted)


def test_one_image_of_a_class_cannot_be_split(whole: Path) -> None:
    shutil.rmtree(whole / "dog")
    draw(whole / "dog", 1)
    with pytest.raises(DataError, match="the only image of 'dog'"):
        folder(whole)


def test_an_image_that_is_cut_short_ends_a_run_before_it_begins(parted: Path) -> None:
    _cut_short(parted)
    suite(parted.parent, '{ kind = "folder", path = "images" }')
    done = called("run", "own.toml", "--device", "cpu", cwd=parted.parent)
    assert (done.returncode, "train/dog/3.png cannot be decoded" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("network", "size"),
    [
        ('{ kind = "fc", hidden = [9] }', 8),
        ('{ kind = "cnn", channels = [2, 3, 2], dense = 4 }', 18),
        ('{ kind = "resnet", depth = 8 }', 12),
    ],
)
def test_networks_are_trained_on_it(network: str, size: int, parted: Path) -> None:
    path = suite(parted.parent, f'{{ kind = "folder", path = "images", size = {size} }}')
    path.write_text(path.read_text().replace('{ kind = "fc", hidden = [9] }', network))
    done = called("run", "own.toml", "--device", "cpu", cwd=parted.parent)
    assert done.returncode == 0, done.stderr
