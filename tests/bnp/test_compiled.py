"""Models under torch.compile: statistics join at the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.errors import StatisticsError
from tests.support.oracle import Watched


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(20, 4, bias=False), nn.Tanh(),
        nn.Linear(4, 2),
    ).double()  # fmt: skip


def rows(count: int, seed: int) -> Tensor:
    return 1 + torch.randn(count, 2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def calls(model: nn.Module, batches: list[Tensor]) -> dict[str, list[Tensor]]:
    """What the layers of ``model`` are called with, seen on a copy that runs eagerly."""
    twin = network()
    twin.load_state_dict(model.state_dict())
    watched = Watched(twin)
    for batch in batches:
        twin(batch)
    return watched.inputs


def compile_(model: nn.Module, backend: str) -> nn.Module:
    return torch.compile(model, backend=backend, fullgraph=True, dynamic=False)


def test_a_compiled_model_takes_the_same_steps() -> None:
    """Also with micro-batches, with one row, and with a forward in eval mode and one under no_grad."""
    model = network()
    watched, bnp = Watched(model), BNP(model)
    fast = compile_(model, "aot_eager")
    for step, count in enumerate((4, 4, 1)):
        model.zero_grad()
        batches = [rows(count, seed) for seed in range(1 + step % 2)]
        for batch in batches:
            fast(batch).square().mean().backward()
        if step == 0:
            with torch.no_grad():
                fast(rows(count, 9))
            model.eval()
            fast(rows(count, 9))
            model.train()
        watched.inputs = calls(model, batches)
        watched.check(bnp)


def test_generated_code_takes_the_same_steps() -> None:
    model = nn.Linear(3, 2).double()
    watched, bnp = Watched(model), BNP(model)
    fast = compile_(model, "inductor")
    for seed in range(2):
        model.zero_grad()
        batch = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        fast(batch).square().mean().backward()
        watched.inputs = {"": [batch]}
        watched.check(bnp)


def test_a_compiled_forward_without_backward_counts_until_the_next_step() -> None:
    model = network()
    watched, bnp = Watched(model), BNP(model)
    fast = compile_(model, "aot_eager")
    fast(rows(4, 0))
    fast(rows(4, 1)).square().mean().backward()
    watched.inputs = calls(model, [rows(4, 0), rows(4, 1)])
    watched.check(bnp)
    model.zero_grad()
    fast(rows(4, 2)).square().mean().backward()
    watched.inputs = calls(model, [rows(4, 2)])
    watched.check(bnp)


def test_a_step_without_gradients_forgets_the_rows() -> None:
    model = network()
    watched, bnp = Watched(model), BNP(model)
    fast = compile_(model, "aot_eager")
    fast(rows(4, 0)).square().mean().backward()
    model.zero_grad()
    bnp.precondition()
    fast(rows(4, 1)).square().mean().backward()
    watched.inputs = calls(model, [rows(4, 1)])
    watched.check(bnp)


def test_eager_and_compiled_calls_are_pooled() -> None:
    model = network()
    watched, bnp = Watched(model), BNP(model)
    fast = compile_(model, "aot_eager")
    fast(rows(4, 0)).square().mean().backward()
    model(rows(3, 1)).square().mean().backward()
    watched.inputs = calls(model, [rows(4, 0), rows(3, 1)])
    watched.check(bnp)


def test_hooks_added_after_the_model_ran_compiled_are_an_error_not_a_skip() -> None:
    model = network()
    fast = compile_(model, "aot_eager")
    fast(rows(4, 0)).square().mean().backward()
    model.zero_grad()
    watched, bnp = Watched(model), BNP(model)
    fast(rows(4, 1)).square().mean().backward()
    watched.inputs = calls(model, [rows(4, 1)])
    refused = None
    try:
        watched.check(bnp)  # a torch that compiles again when hooks are added
    except StatisticsError as error:
        refused = str(error)
    assert refused is None or "compiled" in refused


@pytest.mark.regression
@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_batch_changes_nothing(compiled: bool) -> None:
    """A batch without examples has no statistics: a compiled model raised an IndexError where an eager one went on."""
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(12, 2))
    bnp = BNP(model)
    before = bnp.state_dict()
    forward = torch.compile(model, backend="eager", fullgraph=True, dynamic=False) if compiled else model
    forward(torch.ones(0, 2, 5)).sum().backward()
    bnp.precondition()
    assert all(torch.equal(value, before[name]) for name, value in bnp.state_dict().items())
    forward(torch.ones(3, 2, 5)).sum().backward()  # and the next batch counts as ever
    bnp.precondition()
    assert not torch.equal(bnp.state_dict()["0.running_mean"], before["0.running_mean"])


@pytest.mark.regression
@pytest.mark.parametrize("steps", [1, 3])
def test_a_model_that_was_cast_keeps_the_rows_of_its_first_step(steps: int) -> None:
    """A compiled model had already added them to sums that zeros replaced when the running values followed the cast."""
    model = network().float()
    bnp = BNP(model)
    watched = Watched(model.double())
    fast = compile_(model, "eager")
    for step in range(steps):
        model.zero_grad()
        fast(rows(6, step)).square().mean().backward()
        watched.inputs = calls(model, [rows(6, step)])
        watched.check(bnp)
