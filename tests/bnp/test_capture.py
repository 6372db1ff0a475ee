"""Steps that are recorded once and replayed, or traced: all that a step changes is changed in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from bnpbench.bnp import BNP, algorithms
from tests.support.recorder import Recorder


class Training:
    """A model, its BNP, and a step that reads its batch from a resident tensor."""

    def __init__(self, batch_size: int, set_to_none: bool, micro_batches: int, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(1, 3, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 2)
        ).double()
        self.batch = torch.empty(micro_batches, batch_size, 1, 3, 3, dtype=torch.float64)
        self.bnp = BNP(self.model, **options)
        lr = torch.tensor(0.1, dtype=torch.float64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, fused=True)
        self.set_to_none = set_to_none

    def load(self, seed: int) -> None:
        self.batch.normal_(1.0, generator=torch.Generator().manual_seed(seed))

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        for part in self.batch:
            self.model(part).square().mean().backward()
        self.bnp.precondition()
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        return [*(p.detach().clone() for p in self.model.parameters()), *self.bnp.state_dict().values()]


@pytest.mark.parametrize("options", [{}, {"count": "forward"}, {"statistics": "batch"}], ids=str)
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_replayed_step_is_the_step(
    batch_size: int, set_to_none: bool, micro_batches: int, options: dict[str, Any]
) -> None:
    eager, replayed = (Training(batch_size, set_to_none, micro_batches, **options) for _ in range(2))
    for run in (eager, replayed):
        for seed in range(2):
            run.load(seed)
            run.step()
    recorder = Recorder()
    for seed in range(2, 6):
        for run in (eager, replayed):
            run.load(seed)
        eager.step()
        if seed == 2:
            with recorder:
                replayed.step()
        else:
            recorder.replay()
        assert all(a.equal(b) for a, b in zip(eager.state(), replayed.state(), strict=True))


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_whole_step_with_the_object_can_be_traced(batch_size: int) -> None:
    traced, eager = (Training(batch_size, set_to_none=True, micro_batches=1) for _ in range(2))
    parameters = list(traced.model.parameters())

    def step(batch: Tensor) -> Tensor:
        loss = traced.model(batch).square().mean()
        for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = grad
        traced.bnp.precondition()
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(parameter.grad * 0.1)
                parameter.grad = None
        return loss.detach()

    kept = traced.state()
    graph = make_fx(step)(traced.batch[0].normal_())
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=False):
            parameter.copy_(value)
    traced.bnp.load_state_dict(dict(zip(traced.bnp.state_dict(), kept[len(parameters) :], strict=True)))
    for seed in range(3):
        eager.load(seed)
        eager.step()
        with torch.no_grad():
            graph(eager.batch[0])
        for a, b in zip(eager.state(), traced.state(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_the_functions_can_be_traced() -> None:
    def step(h: Tensor, g_w: Tensor, g_b: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor | None]:
        batch_mean, batch_variance = algorithms.batch_statistics(h)
        algorithms.update_running(mean, batch_mean, 0.99)
        algorithms.update_running(variance, batch_variance, 0.99)
        damped = algorithms.damped_variance(variance)
        return algorithms.precondition_dense(g_w, g_b, mean, damped, algorithms.dense_scale(h.shape[1], len(h)))

    def arguments(seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.rand(size, generator=generator, dtype=torch.float64) for size in ((6, 5), (3, 5), (3,), (5,), (5,))
        ]

    graph = make_fx(step)(*arguments(0))
    mine, theirs = arguments(1), arguments(1)
    for a, b in zip(step(*mine), graph(*theirs), strict=True):
        assert a.equal(b)
    assert all(a.equal(b) for a, b in zip(mine, theirs, strict=True))
