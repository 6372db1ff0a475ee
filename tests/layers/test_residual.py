"""Blocks of residual networks: their shortcuts, and what stands where. Whole networks: networks/test_resnet.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bnpbench.layers.residual import BasicBlock, CifarResNet, PreactivationBlock
from bnpbench.sites import Normalization

NOTHING = Normalization()


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("block", [BasicBlock, PreactivationBlock])
def test_a_shortcut_takes_every_second_pixel_and_fills_with_zeros(block: Any, side: int) -> None:
    """With convolutions of zero the block is its shortcut alone (option A)."""
    made = block(4, 8, 2, NOTHING, "x", False)
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(3, 4, side, side)
    want = torch.zeros(3, 8, (side + 1) // 2, (side + 1) // 2)
    want[:, 2:6] = x[:, :, ::2, ::2]
    assert torch.equal(made(x), want)


@pytest.mark.parametrize("activated", [True, False])
def test_a_preactivation_block_activates_its_input_unless_it_comes_so(activated: bool) -> None:
    torch.manual_seed(0)
    block = PreactivationBlock(4, 4, 1, NOTHING, "x", activated)
    x = torch.randn(2, 4, 5, 5)
    first = x if activated else x.relu()
    inner = F.conv2d(first, block.conv1.weight, block.conv1.bias, padding=1).relu()
    torch.testing.assert_close(block(x), x + F.conv2d(inner, block.conv2.weight, block.conv2.bias, padding=1))


def test_a_basic_block_activates_the_sum() -> None:
    torch.manual_seed(0)
    block = BasicBlock(4, 4, 1, NOTHING, "x", False)
    x = torch.randn(2, 4, 5, 5)
    inner = F.conv2d(x, block.conv1.weight, block.conv1.bias, padding=1).relu()
    want = (x + F.conv2d(inner, block.conv2.weight, block.conv2.bias, padding=1)).relu()
    torch.testing.assert_close(block(x), want)


@pytest.mark.parametrize(("preactivation", "last"), [(False, "stage3.1.conv2"), (True, "stage3.1.conv2")])
@pytest.mark.parametrize("depth", [14])
def test_each_place_has_a_site_of_its_own(preactivation: bool, last: str, depth: int) -> None:
    asked: list[tuple[int, str]] = []

    def maker(features: int, spatial_dims: int, site: str) -> nn.Module:
        assert spatial_dims == 2
        asked.append((features, site))
        return nn.Identity()

    CifarResNet(depth, preactivation, Normalization("post", maker), 3, 10)
    sites = [site for _, site in asked]
    assert len(set(sites)) == len(sites) == depth - 1  # one behind, or before, each convolution
    assert asked[0] == (16, "conv1")
    assert (64, last) in asked
