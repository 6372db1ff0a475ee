"""Augmentation of image batches on their device: pad, random crop, random flip."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bnpbench.errors import SuiteError

PADDING = 4


def draw_crop_flips(count: int, generator: torch.Generator, device: torch.device, padding: int = PADDING) -> Tensor:
    """Random offsets and flips for ``count`` images.

    Returns:
        (count, 3) in int64: the crop's top and left, uniform in 0 … 2·padding, and 1 where the image is flipped.
    """
    offsets = torch.randint(2 * padding + 1, (count, 2), generator=generator, device=device)
    flips = torch.randint(2, (count, 1), generator=generator, device=device)
    return torch.cat([offsets, flips], dim=1)


def crop_flip(images: Tensor, draws: Tensor, padding: int = PADDING) -> Tensor:
    """Each image padded with zeros, cropped back to its size, and flipped left to right.

    Equal in distribution to torchvision's ``RandomCrop(size, padding)`` and ``RandomHorizontalFlip()``,
    one gather for the whole batch and nothing read back to the host.

    Args:
        images: (N, C, H, W).
        draws: (N, 3) of ``draw_crop_flips``.
        padding: zeros on every side.

    Returns:
        (N, C, H, W), new.

    Raises:
        SuiteError: rows instead of images.
    """
    if images.ndim != 4:
        raise SuiteError(
            f"augment = 'crop-flip' changes images (N, C, H, W), and this network reads rows of {images.shape[1]} "
            "values; use a convolutional network or augment = 'none'"
        )
    n, channels, height, width = images.shape
    top, left, flip = draws.unsqueeze(2).unbind(1)  # (N, 1) each
    rows = top + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = left + torch.where(flip == 1, width - 1 - columns, columns)
    image = torch.arange(n, device=images.device)[:, None, None, None]
    padded = F.pad(images, (padding, padding, padding, padding))
    if not images.is_contiguous():  # channels last: whole pixels are gathered, and left in that order
        pixels = padded.movedim(1, -1)[image[..., 0], rows[:, :, None], columns[:, None, :]]
        return pixels.movedim(-1, 1)
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
