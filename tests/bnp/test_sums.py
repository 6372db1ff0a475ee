"""What is summed over the gradients at the outputs of layers; the rest is in test_rewriter.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bnpbench.bnp.rewriter import Rewriter
from tests.support.matrices import images, network
from tests.support.pairs import Pairs, output_gradients


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("passes", [0, 3])
def test_gradients_at_the_outputs_are_summed_over_rows(passes: int) -> None:
    model, twin = network(), network()
    rewriter = Rewriter(model, Pairs(passes=passes), count="forward")
    batches = [images(4, 0), images(2, 1)]
    for batch in batches:
        output = model(batch)
        if passes:
            rewriter.look_back(output)
        (output.square().sum() / 6).backward()
    rewriter.precondition()
    own = [lambda h: h.square().sum() / 6]
    further = [lambda h, k=k: h.log_softmax(1)[:, k].sum() for k in range(passes)]
    for name, expected in output_gradients(twin, batches, further or own).items():
        torch.testing.assert_close(rewriter.state_dict()[f"{name}.outputs"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("passes", [0, 3])
def test_gradients_at_the_outputs_reach_out_of_a_compiled_module(passes: int) -> None:
    model, twin = network(), network()
    rewriter = Rewriter(model, Pairs(passes=passes))
    fast = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    for step in range(2):
        batches = [images(4, 2 * step), images(4, 2 * step + 1)]
        model.zero_grad()
        for batch in batches:
            output = fast(batch)
            if passes:
                rewriter.look_back(output)
            (output.square().sum() / 8).backward()
        rewriter.precondition()
        own = [lambda h: h.square().sum() / 8]
        further = [lambda h, k=k: h.log_softmax(1)[:, k].sum() for k in range(passes)]
        for name, expected in output_gradients(twin, batches, further or own).items():
            torch.testing.assert_close(rewriter.state_dict()[f"{name}.outputs"], expected, rtol=1e-9, atol=1e-12)
