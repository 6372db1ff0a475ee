"""Residual networks of He et al. for CIFAR (2015, and pre-activation, 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.sites import Normalization

WIDTHS = (16, 32, 64)


class CifarResNet(nn.Module):
    """A 3 x 3 convolution, three stages of n basic blocks of 16, 32 and 64 channels, mean, one dense layer.

    Shortcuts are option A: the second and third stage start with a stride of 2, their shortcut
    takes every second pixel and fills the new channels with zeros, so it has no parameters.
    Depth is 6n + 2. Convolutions have a bias only where the method needs one. Normalization stands
    behind each convolution, or in pre-activation before it (and its ReLU); there, as in He et al. 2016, the
    first block's first activation is shared with its shortcut.

    Args:
        depth: 6n + 2.
        preactivation: the form of 2016.
        normalization: what stands at each place.
        channels: of the images.
        classes: number of outputs.
    """

    def __init__(
        self, depth: int, preactivation: bool, normalization: Normalization, channels: int, classes: int
    ) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        block = PreactivationBlock if preactivation else BasicBlock
        self.conv1 = _conv3x3(channels, WIDTHS[0], 1, normalization)
        self.norm1 = normalization.make(WIDTHS[0], 2, "conv1")
        self.relu = nn.ReLU()
        features, stages = WIDTHS[0], []
        for stage, width in enumerate(WIDTHS, start=1):
            layers = []
            for index in range(blocks):
                stride = 2 if stage > 1 and index == 0 else 1
                site = f"stage{stage}.{index}"
                activated = stage == 1 and index == 0
                layers.append(block(features, width, stride, normalization, site, activated))
                features = width
            stages.append(nn.Sequential(*layers))
        self.stage1, self.stage2, self.stage3 = stages
        last = f"stage3.{blocks - 1}.conv2"
        self.last_norm = normalization.make(features, 2, last) if preactivation else None
        self.output = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes) of images (N, channels, height, width)."""
        x = self.relu(self.norm1(self.conv1(x)))
        x = self.stage3(self.stage2(self.stage1(x)))
        if self.last_norm is not None:
            x = self.relu(self.last_norm(x))
        logits: Tensor = self.output(x.mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))."""

    def __init__(
        self, channels: int, width: int, stride: int, normalization: Normalization, site: str, activated: bool
    ) -> None:
        super().__init__()
        self.conv1 = _conv3x3(channels, width, stride, normalization)
        self.norm1 = normalization.make(width, 2, f"{site}.conv1")
        self.conv2 = _conv3x3(width, width, 1, normalization)
        self.norm2 = normalization.make(width, 2, f"{site}.conv2")
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, h, w) to (N, width, h / stride, w / stride)."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        activated: Tensor = self.relu(y + _shortcut(x, y))
        return activated


class PreactivationBlock(nn.Module):
    """shortcut(x) + conv(relu(norm(conv(relu(norm(x)))))); ``activated``: x comes normalized, through a ReLU."""

    def __init__(
        self, channels: int, width: int, stride: int, normalization: Normalization, site: str, activated: bool
    ) -> None:
        super().__init__()
        self.norm1 = None if activated else normalization.make(channels, 2, f"the input of {site}")
        self.conv1 = _conv3x3(channels, width, stride, normalization)
        self.norm2 = normalization.make(width, 2, f"{site}.conv1")
        self.conv2 = _conv3x3(width, width, 1, normalization)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, h, w) to (N, width, h / stride, w / stride)."""
        y = x if self.norm1 is None else self.relu(self.norm1(x))
        y = self.conv2(self.relu(self.norm2(self.conv1(y))))
        total: Tensor = y + _shortcut(x, y)
        return total


def _conv3x3(channels: int, width: int, stride: int, normalization: Normalization) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=normalization.conv_bias)


def _shortcut(x: Tensor, like: Tensor) -> Tensor:
    """``x``, subsampled and padded with zero channels where ``like`` has more of them (option A)."""
    if x.shape == like.shape:
        return x
    missing = like.shape[1] - x.shape[1]
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, missing // 2, missing - missing // 2))
