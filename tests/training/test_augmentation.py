"""Augmentation against torchvision's transforms: the same crops, and the same distribution of them."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torchvision.transforms import v2

from bnpbench.training.augmentation import crop_flip, draw_crop_flips

DRAWS = 10_000


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """A batch as a training step sees it."""
    return crop_flip(images, draw_crop_flips(len(images), generator, images.device))


def marked() -> Tensor:
    """One image whose values tell their row, column and channel; no value is the padding's 0."""
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    return torch.stack([rows + 1, columns + 1, rows * 32 + columns + 1]).float()


def test_each_offset_and_flip_is_torchvisions_crop() -> None:
    image = marked()
    for top in range(9):
        for left in range(9):
            for flip in (0, 1):
                draws = torch.tensor([[top, left, flip]])
                want = v2.functional.crop(v2.functional.pad(image, [4, 4, 4, 4]), top, left, 32, 32)
                want = v2.functional.horizontal_flip(want) if flip else want
                assert torch.equal(crop_flip(image[None], draws)[0], want)


def test_every_image_of_a_batch_gets_its_own() -> None:
    images = torch.rand(6, 2, 9, 7, generator=torch.Generator().manual_seed(0))
    draws = draw_crop_flips(6, torch.Generator().manual_seed(1), torch.device("cpu"))
    assert len({tuple(row) for row in draws.tolist()}) > 1
    together = crop_flip(images, draws)
    for index in range(6):
        assert torch.equal(together[index], crop_flip(images[index : index + 1], draws[index : index + 1])[0])


def read_off(images: Tensor) -> Tensor:
    """Offsets and flips (n, 3) of augmented ``marked`` images, from their middle pixels."""
    middle, right = images[:, :, 16, 16].long(), images[:, :, 16, 17].long()
    flip = (right[:, 1] < middle[:, 1]).long()
    top = middle[:, 0] - 1 + 4 - 16
    left = middle[:, 1] - 1 + 4 - torch.where(flip == 1, 15, 16)
    return torch.stack([top, left, flip], dim=1)


def test_offsets_flips_mean_and_variance_agree_with_torchvision_over_ten_thousand_draws() -> None:
    torch.manual_seed(0)
    image = marked()
    theirs = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()])
    generator = torch.Generator().manual_seed(0)
    draws, moments = {}, {}
    for name, batches in {
        "ours": (augmented(image.expand(1000, -1, -1, -1), generator) for _ in range(DRAWS // 1000)),
        "theirs": (torch.stack([theirs(image) for _ in range(1000)]) for _ in range(DRAWS // 1000)),
    }.items():
        parts, total, squares = [], torch.zeros_like(image), torch.zeros_like(image)
        for batch in batches:
            parts.append(read_off(batch))
            total += batch.sum(0)
            squares += batch.square().sum(0)
        draws[name] = torch.cat(parts)
        moments[name] = torch.stack([total / DRAWS, squares / DRAWS - (total / DRAWS).square()])
    for found in draws.values():
        cells = (found[:, 0] * 9 + found[:, 1]) * 2 + found[:, 2]
        counts = cells.bincount(minlength=162)
        assert len(counts) == 162
        assert chisquare(counts.numpy()).pvalue > 1e-3
    scale = moments["theirs"].amax((2, 3), keepdim=True)
    assert ((moments["ours"] - moments["theirs"]).abs() / scale).max() < 0.05


def test_the_generator_alone_decides() -> None:
    image = marked().expand(8, -1, -1, -1)

    def run(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.stack([augmented(image, generator), augmented(image, generator)])

    torch.manual_seed(1)
    first = run(0)
    torch.manual_seed(2)
    assert torch.equal(first, run(0))
    assert not torch.equal(first, run(1))
    assert not torch.equal(first[0], first[1])


def test_nothing_is_read_back_to_the_host() -> None:
    draws = torch.empty(4, 3, dtype=torch.int64, device="meta")
    assert crop_flip(torch.empty(4, 3, 32, 32, device="meta"), draws).shape == (4, 3, 32, 32)


@pytest.mark.parametrize("padding", [0, 2])
def test_other_paddings(padding: int) -> None:
    draws = draw_crop_flips(500, torch.Generator().manual_seed(0), torch.device("cpu"), padding)
    assert draws.amin(0).tolist() == [0, 0, 0]
    assert draws.amax(0).tolist() == [2 * padding, 2 * padding, 1]
    images = torch.rand(500, 1, 5, 5)
    assert crop_flip(images, draws, padding).shape == images.shape
