"""An image folder as batches: order, crops, workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bnpbench.errors import DataError
from tests.support.imagefolders import CLASSES, everything, lay_out, streams


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path, train=9, val=3)


def corrupt(path: Path) -> None:
    path.write_bytes(b"this is no image")


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
