"""BNP equals (1/q^2) P P^T G, over several steps, for every kind of layer and of call."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bnpbench.bnp import BNP
from tests.support.oracle import Watched

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
examples = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def random_loss(output: Tensor, generator: torch.Generator) -> Tensor:
    """A loss whose gradient at the output is random, so that nothing cancels."""
    return (output * torch.randn(output.shape, generator=generator, dtype=output.dtype)).sum() / max(len(output), 1)


def train(model: nn.Module, shape: tuple[int, ...], *, steps: int = 3, batch: bool = False, scale: bool = True) -> None:
    """A few steps on inputs that are not centred, each compared with the oracle."""
    generator = torch.Generator().manual_seed(1)
    watched = Watched(model, batch=batch, scale=scale)
    bnp = BNP(model, statistics="batch" if batch else "running", scale=scale)
    for step in range(steps):
        model.zero_grad()
        inputs = 1.0 + step + torch.randn(shape, generator=generator, dtype=torch.float64)
        random_loss(model(inputs), generator).backward()
        watched.check(bnp)
    assert bnp.layers == tuple(watched.layers)


@examples
@given(
    rows=st.integers(1, 6),
    middle=st.lists(st.integers(1, 3), max_size=2),
    n=st.integers(1, 7),
    n_out=st.integers(1, 5),
    bias=st.booleans(),
    batch=st.booleans(),
    scale=st.booleans(),
)
def test_linear(rows: int, middle: list[int], n: int, n_out: int, bias: bool, batch: bool, scale: bool) -> None:
    train(nn.Linear(n, n_out, bias=bias).double(), (rows, *middle, n), batch=batch, scale=scale)


@examples
@given(data=st.data(), dims=st.integers(1, 3), bias=st.booleans(), batch=st.booleans(), scale=st.booleans())
def test_convolution(data: st.DataObject, dims: int, bias: bool, batch: bool, scale: bool) -> None:
    def per_side(low: int, high: int) -> tuple[int, ...]:
        return data.draw(st.tuples(*[st.integers(low, high)] * dims))

    groups = data.draw(st.integers(1, 3), label="groups")
    kernel, stride, padding, dilation = per_side(1, 3), per_side(1, 3), per_side(0, 2), per_side(1, 2)
    layer = CONVOLUTIONS[dims](
        groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 2)), kernel,
        stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias,
    ).double()  # fmt: skip
    size = [d * (k - 1) + 1 + data.draw(st.integers(0, 2)) for d, k in zip(dilation, kernel, strict=True)]
    train(layer, (data.draw(st.integers(1, 4), label="N"), layer.in_channels, *size), batch=batch, scale=scale)


def deep() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False),
        nn.Tanh(), nn.Flatten(), nn.Linear(24, 5), nn.ReLU(inplace=True), nn.Linear(5, 3),
    ).double()  # fmt: skip


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_network(batch_size: int) -> None:
    train(deep(), (batch_size, 2, 6, 6))


def test_channels_last() -> None:
    train(deep().to(memory_format=torch.channels_last), (3, 2, 6, 6))


def test_linear_on_one_row_and_convolution_on_one_image_without_batch_dimension() -> None:
    train(nn.Linear(4, 3).double(), (4,))
    train(nn.Conv2d(2, 3, 2, stride=2).double(), (2, 5, 4))
    train(nn.Conv1d(4, 2, 3, groups=2).double(), (4, 3))


def test_convolution_with_a_single_row_uses_the_distance_from_the_running_mean() -> None:
    train(nn.Conv2d(3, 2, 1).double(), (1, 3, 1, 1))


def test_rows_in_place_of_a_view_are_counted() -> None:
    """A Linear on three dimensions returns a view, which an in-place ReLU takes to another autograd node."""
    train(nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)).double(), (2, 5, 4))


class Repeated(nn.Module):
    """One layer, called several times."""

    def __init__(self, layer: nn.Module, times: int) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, h: Tensor) -> Tensor:
        for _ in range(self.times):
            h = self.layer(h).tanh()
        return h


@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("shape", [(1, 4), (3, 4)])
def test_shared_layer_pools_the_rows_of_its_calls(times: int, shape: tuple[int, ...]) -> None:
    train(Repeated(nn.Linear(4, 4).double(), times), shape)


def test_shared_convolution() -> None:
    train(Repeated(nn.Conv1d(4, 4, 3, padding=1, groups=2, bias=False).double(), 3), (2, 4, 5))


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("sizes", [(3, 3), (1, 1), (4, 1, 2)])
def test_micro_batches_are_one_batch(sizes: tuple[int, ...], set_to_none: bool) -> None:
    model = deep()
    watched, bnp, generator = Watched(model), BNP(model), torch.Generator().manual_seed(1)
    for _ in range(3):
        model.zero_grad(set_to_none=set_to_none)
        for size in sizes:
            h = 3 + torch.rand(size, 2, 6, 6, generator=generator, dtype=torch.float64)
            random_loss(model(h), generator).backward()
        watched.check(bnp)


class Checkpointed(nn.Module):
    """Recomputes ``body`` in the backward pass."""

    def __init__(self, head: nn.Module, body: nn.Module, use_reentrant: bool) -> None:
        super().__init__()
        self.head, self.body, self.use_reentrant = head, body, use_reentrant

    def forward(self, h: Tensor) -> Tensor:
        return checkpoint(self.body, self.head(h), use_reentrant=self.use_reentrant)


def once_each(inputs: list[Tensor]) -> list[Tensor]:
    """The calls without their recomputation, which sees the same input again."""
    return [h for i, h in enumerate(inputs) if not any(h.equal(earlier) for earlier in inputs[:i])]


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_checkpointing_counts_each_row_once(use_reentrant: bool, micro_batches: int) -> None:
    shared = nn.Linear(4, 4)
    body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), shared, nn.Tanh(), shared)
    model = Checkpointed(nn.Linear(3, 4), body, use_reentrant).double()
    watched, bnp, generator = Watched(model), BNP(model), torch.Generator().manual_seed(1)
    for _ in range(3):
        model.zero_grad()
        for _ in range(micro_batches):
            random_loss(model(torch.rand(3, 3, generator=generator, dtype=torch.float64)), generator).backward()
        for name, inputs in watched.inputs.items():
            watched.inputs[name] = once_each(inputs)
        watched.check(bnp)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_layer_shared_between_a_checkpointed_part_and_the_rest(use_reentrant: bool) -> None:
    """With reentrant checkpointing the inner backward pass runs, and ends, in the middle of the outer one."""
    shared = nn.Linear(4, 4).double()

    def model(h: Tensor) -> Tensor:
        h = shared(shared(h).tanh()).tanh()
        h = checkpoint(lambda z: shared(shared(z).tanh()), h, use_reentrant=use_reentrant)
        return shared(h.tanh())

    watched, bnp, generator = Watched(shared), BNP(shared), torch.Generator().manual_seed(1)
    for _ in range(3):
        shared.zero_grad()
        random_loss(model(torch.rand(3, 4, generator=generator, dtype=torch.float64)), generator).backward()
        watched.inputs[""] = once_each(watched.inputs[""])
        assert len(watched.inputs[""]) == 5
        watched.check(bnp)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda loss, parameters: torch.autograd.grad(loss, parameters),
        lambda loss, parameters: torch.autograd.grad(loss, parameters, create_graph=True),
    ],
)
def test_gradients_put_into_place_by_hand(gradient: Callable[[Tensor, list[Tensor]], tuple[Tensor, ...]]) -> None:
    model = deep()
    watched, bnp, generator = Watched(model), BNP(model), torch.Generator().manual_seed(1)
    parameters = list(model.parameters())
    for _ in range(3):
        model.zero_grad()
        h = torch.rand(3, 2, 6, 6, generator=generator, dtype=torch.float64)
        gradients = gradient(random_loss(model(h), generator), parameters)
        for parameter, value in zip(parameters, gradients, strict=True):
            parameter.grad = value.detach()
        watched.check(bnp)
