"""Transformers of dense layers, against torch's own blocks and by what they must not see."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.layers.transformer import Block, ImageTransformer, TextTransformer, waves
from bnpbench.sites import Normalization

LN = Normalization("post", lambda features, _, site: nn.LayerNorm(features))
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 2, "normalization": LN}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_a_block_is_torchs(first: bool, causal: bool) -> None:
    """``nn.TransformerEncoderLayer`` with the same weights, forwards and backwards."""
    torch.manual_seed(0)
    ours = Block(8, 2, causal, 32, first, LN, "b").double()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=first
    ).double()
    attention = theirs.self_attn
    pairs = [(attention.in_proj_weight, ours.attention.qkv.weight), (attention.in_proj_bias, ours.attention.qkv.bias)]
    pairs += [
        (attention.out_proj.weight, ours.attention.out.weight),
        (attention.out_proj.bias, ours.attention.out.bias),
    ]
    for dense, layer in ((theirs.linear1, ours.dense[0]), (theirs.linear2, ours.dense[2])):
        pairs += [(dense.weight, layer.weight), (dense.bias, layer.bias)]
    with torch.no_grad():
        for target, source in pairs:
            target.copy_(source)
    x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    found, expected = ours(x), theirs(x, src_mask=mask, is_causal=causal)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("first", [True, False])
def test_no_token_sees_what_comes_after_it(first: bool) -> None:
    torch.manual_seed(0)
    network = TextTransformer(6, 5, first=first, **SMALL)
    tokens = torch.randint(5, (2, 6))
    other = tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % 5
    before, after = network(tokens), network(other)
    assert before.shape == (2, 5, 6)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.allclose(before[:, :, 4], after[:, :, 4])


def test_patches_are_tokens_in_order() -> None:
    network = ImageTransformer((2, 4, 6), 2, 3, first=True, **SMALL)
    seen: list[torch.Tensor] = []
    network.embedding.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.randn(5, 2, 4, 6)
    assert network(images).shape == (5, 3)
    patches = [images[:, :, y : y + 2, x : x + 2].flatten(1) for y in (0, 2) for x in (0, 2, 4)]
    assert torch.equal(seen[0], torch.stack(patches, 1))


def test_positions_are_sines_and_cosines_of_falling_frequencies() -> None:
    found = waves(7, 6)
    for at in range(7):
        for pair in range(3):
            angle = at / 10_000 ** (2 * pair / 6)
            assert found[at, 2 * pair : 2 * pair + 2].tolist() == pytest.approx([math.sin(angle), math.cos(angle)])
