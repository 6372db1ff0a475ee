"""What is summed over the gradients at the outputs of layers; the rest is in test_rewriter.py."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.bnp.sums import SumsCall
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


class Mark:
    """Kept by a graph."""

    alive: ClassVar[weakref.WeakSet[Mark]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


class Marked(torch.autograd.Function):
    """The identity; its node keeps a mark as long as the graph is there."""

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor) -> torch.Tensor:
        ctx.mark = Mark()
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@pytest.mark.parametrize("count", ["forward", "backward"])
@pytest.mark.parametrize("passes", [0, 3])
def test_forward_passes_without_a_look_back_leave_nothing_behind(passes: int, count: Any) -> None:
    model, twin = network(), network()
    rewriter = Rewriter(model, Pairs(passes=passes), count=count)
    gc.collect()
    calls, marks = number_of_calls(), len(Mark.alive)
    for number in range(5):
        kept = model(Marked.apply(images(3, number).requires_grad_()))
    assert len(Mark.alive) == marks + 1
    del kept
    gc.collect()
    assert len(Mark.alive) == marks
    if passes and count == "forward":
        return  # each of them counts at once, as asked for
    assert number_of_calls() == calls
    batch, unused = images(4, 0), model(images(2, 1))
    output = model(batch)
    also_unused = model(images(2, 2))
    rewriter.look_back(output)
    (output.square().sum() / 4).backward()
    rewriter.precondition()
    losses = [lambda h, k=k: h.log_softmax(1)[:, k].sum() for k in range(passes)] or [lambda h: h.square().sum() / 4]
    for name, expected in output_gradients(twin, [batch], losses).items():
        torch.testing.assert_close(rewriter.state_dict()[f"{name}.outputs"], expected, rtol=1e-9, atol=1e-12)
    assert len(unused) == len(also_unused)


def number_of_calls() -> int:
    return sum(isinstance(one, SumsCall) for one in gc.get_objects())


def test_a_second_look_at_the_same_calls_adds_nothing() -> None:
    found = []
    for looks in (1, 2):
        model = network()
        rewriter = Rewriter(model, Pairs(passes=2))
        output = model(images(4, 0))
        for _ in range(looks):
            rewriter.look_back(output)
        output.square().sum().backward()
        rewriter.precondition()
        found.append(rewriter.state_dict())
    for key in found[0].keys() - {"draws"}:
        torch.testing.assert_close(found[0][key], found[1][key])


@pytest.mark.parametrize("checkpointed", [False, True])
def test_all_calls_of_a_shared_layer_are_looked_back_at_in_each_micro_batch(checkpointed: bool) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(4, 4).double()
    rewriter = Rewriter(shared, Pairs(passes=2))
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for _ in range(2):
        x = torch.randn(5, 4, dtype=torch.float64)
        first = shared(x) if not checkpointed else checkpoint(shared, x, use_reentrant=False)
        output = shared(first.tanh())
        rewriter.look_back(output)
        output.square().mean().backward()
        plain = nn.functional.linear(x, shared.weight, shared.bias)
        second = nn.functional.linear(plain.tanh(), shared.weight, shared.bias)
        for k in range(2):
            grads = torch.autograd.grad(second.log_softmax(1)[:, k].sum(), [plain, second], retain_graph=True)
            expected += sum(grad.mT @ grad for grad in grads)
    rewriter.precondition()
    torch.testing.assert_close(rewriter.state_dict()["outputs"][0], expected)
