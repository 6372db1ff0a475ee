"""An image folder in ImageNet's layout, with the kinds of file that the real one has, and worse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from bnpbench.cli.data import overview
from bnpbench.errors import DataError
from bnpbench.reading import imagefolder
from bnpbench.reading.stream import Stream, Streams
from bnpbench.registry import built_in
from tests.support.imagefolders import CLASSES, lay_out
from tests.support.kinds import made

CPU = torch.device("cpu")
SIZE = 32


def options(workers: int = 0, size: int = SIZE) -> Any:
    return made("dataset", {"kind": "imagenet", "workers": workers, "size": size})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path, train=9, val=3)


def streams(root: Path, workers: int = 0, **others: Any) -> Streams:
    return options(workers).open(root, device=CPU, **{"augment": True, **others})


def everything(stream: Stream, batch_size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    images, labels = zip(*stream.batches(torch.arange(len(stream)), batch_size, seed), strict=True)
    return torch.cat(images), torch.cat(labels)


def mode_of(path: str) -> str:
    with Image.open(path) as image:
        return image.mode


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


def test_batches_follow_the_order_and_the_last_may_be_short(root: Path) -> None:
    stream = streams(root).test
    every, _ = everything(stream)
    order = torch.tensor([8, 0, 3, 3, 5])
    batches = list(stream.batches(order, batch_size=2))
    assert [len(labels) for _, labels in batches] == [2, 2, 1]
    assert torch.equal(torch.cat([images for images, _ in batches]), every[order])


def test_crops_are_decided_by_the_seed_and_leave_the_random_state_alone(root: Path) -> None:
    stream = streams(root).train
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, _ = everything(stream, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, everything(stream, batch_size=9, seed=5)[0])
    assert not torch.equal(first, everything(stream, seed=6)[0])
    plain = streams(root, augment=False).train
    assert torch.equal(everything(plain, seed=5)[0], everything(plain, seed=6)[0])


def test_parts_of_the_batches_are_the_batches_cropped_alike(root: Path) -> None:
    stream, order = streams(root).train, torch.arange(10)
    whole = list(stream.batches(order, batch_size=5, seed=3))
    parts = [list(stream.batches(order, 5, 3, part)) for part in (slice(0, 2), slice(2, 5))]
    for batch, *pieces in zip(whole, *parts, strict=True):
        assert torch.equal(batch[0], torch.cat([images for images, _ in pieces]))
        assert torch.equal(batch[1], torch.cat([labels for _, labels in pieces]))


def test_worker_processes_change_nothing_serve_several_passes_and_report_errors_plainly(root: Path) -> None:
    alone, shared = streams(root).train, streams(root, workers=2).train
    for seed in (1, 2):
        for ours, theirs in zip(everything(alone, seed=seed), everything(shared, seed=seed), strict=True):
            assert torch.equal(ours, theirs)
    next(iter(shared.batches(torch.arange(27), 3)))  # a pass that is broken off
    assert torch.equal(everything(alone)[0], everything(shared)[0])
    assert shared.rate(27, batch_size=9) > 1
    path = root / "imagenet/train" / CLASSES[0] / f"{CLASSES[0]}_2.JPEG"
    corrupt(path)
    with pytest.raises(DataError) as error:
        everything(shared)
    assert str(error.value).startswith(str(path))
    assert "Traceback" not in str(error.value)


def test_validation_and_limit_come_from_the_training_folder(root: Path) -> None:
    opened = streams(root, train_limit=10, validation=0.2, seed=3)
    assert opened.validation is not None
    assert (len(opened.train), len(opened.validation), len(opened.test)) == (10, 5, 9)
    images, _ = everything(opened.validation)
    assert torch.equal(images, everything(opened.validation, seed=1)[0])  # not cropped at random


# --- files that cannot be used ---------------------------------------------------------------


def corrupt(path: Path) -> None:
    path.write_bytes(b"this is no image")


def cut_short(path: Path) -> None:
    Image.effect_noise((200, 200), 50).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:2000])


def bomb(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path, "PNG")


def half_a_bomb(path: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(path, "PNG")  # PIL only warns of these


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


def test_classes_must_agree(root: Path) -> None:
    (root / "imagenet/val" / CLASSES[2]).rename(root / "imagenet/val/n99999999")
    with pytest.raises(DataError, match="n02102040") as error:
        streams(root)
    assert "in train and not in val" in str(error.value)


def test_a_class_without_images_is_an_error(root: Path) -> None:
    (root / "imagenet/train/n99999999").mkdir()
    with pytest.raises(DataError, match="n99999999"):
        streams(root)


def test_it_is_never_loaded_whole(root: Path) -> None:
    with pytest.raises(DataError, match="streamed"):
        options().tensors(root)


def test_the_defaults_are_the_papers() -> None:
    assert made("dataset", {"kind": "imagenet"}).size == 224
