"""An image folder in ImageNet's layout, with the kinds of file that the real one has, and worse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from bnpbench.cli.data import overview
from bnpbench.errors import DataError
from bnpbench.reading import imagefolder
from bnpbench.registry import built_in
from tests.support.imagefolders import CLASSES, SIZE, everything, lay_out, options, streams
from tests.support.kinds import made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path, train=9, val=3)


def test_what_is_described_is_what_is_streamed(root: Path) -> None:
    shape = options().found(root)
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, SIZE, SIZE), 3, 27, 9)
    assert options().streamed
    opened = streams(root)
    images, labels = everything(opened.train)
    assert images.shape == (27, 3, SIZE, SIZE)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert 0 <= images.min() < 0.2 < 0.8 < images.max() <= 1
    assert labels.bincount().tolist() == [9, 9, 9]
    assert torch.equal(labels, opened.train.labels)
    assert (len(opened.test), opened.validation, opened.classes) == (9, None, 3)


# --- files that cannot be used ---------------------------------------------------------------


def test_a_missing_folder_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    reason = options().unfit(tmp_path)
    assert reason is not None
    for word in ["imagenet/train", "image-net.org", "--data-dir", "BNPBENCH_DATA"]:
        assert word in reason
    with pytest.raises(DataError, match="imagenet/train"):
        built_in().dataset("imagenet").fetch(tmp_path)
    with pytest.raises(DataError, match="imagenet/train"):
        options().found(tmp_path)


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_folder_one_level_too_deep_is_no_class(root: Path, part: str) -> None:
    """As one class, or as a few, it would be learnt to perfection."""
    folder = root / "imagenet" / part
    folder.rename(root / "moved")
    (root / "moved").rename(folder.parent / "inner")
    folder.mkdir()
    (folder.parent / "inner").rename(folder / "images")
    imagefolder.listing.cache_clear()
    for refused in (lambda: options().found(root), lambda: built_in().dataset("imagenet").fetch(root)):
        with pytest.raises(DataError, match=r"holds no images but folders \('n01440764'\).*one level up") as error:
            refused()
        assert str(folder / "images") in str(error.value)
    assert "damaged" in next(line for line in overview(root).splitlines() if line.startswith("imagenet"))


@pytest.mark.parametrize(("kept", "words"), [(1, "only the class folder 'n01440764'"), (0, "no class folder")])
def test_one_class_is_none_to_tell_from_others(root: Path, kept: int, words: str) -> None:
    for part in ("train", "val"):
        for name in CLASSES[kept:]:
            shutil.rmtree(root / "imagenet" / part / name)
    with pytest.raises(DataError, match=f"{words}, and it takes two classes"):
        options().found(root)


def test_it_is_never_loaded_whole(root: Path) -> None:
    with pytest.raises(DataError, match="streamed"):
        options().tensors(root)


def test_the_defaults_are_the_papers() -> None:
    assert made("dataset", {"kind": "imagenet"}).size == 224
