"""What of a network is called in a training step, seen without data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bnpbench.layers import Calls, calls_of


class Odd(nn.Module):
    """Layers called once, several times, never though their weight is used, without a gradient, and not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.used, self.part, self.spare = (nn.Linear(3, 3) for _ in range(5))
        self.halves, self.times = False, 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.once(x)
        for _ in range(self.times):
            x = self.twice(x)
        x = F.linear(x, self.used.weight)
        if self.halves:
            unused = self.part(x)
            return self.part(x) + unused.detach()
        return x


def test_what_is_never_called_is_named() -> None:
    assert calls_of(Odd(), (3,)) == Calls(frozenset({"used"}), True)


def test_a_call_that_no_gradient_reaches_counts_beside_the_others() -> None:
    model = Odd()
    model.halves = True
    assert calls_of(model, (3,)) == Calls(frozenset({"used"}), False)


def test_several_calls_of_a_layer_are_told() -> None:
    model = Odd()
    model.times = 2
    assert calls_of(model, (3,)) == Calls(frozenset({"used"}), False)


def test_recomputation_is_no_call() -> None:
    class Checkpointed(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.first, self.inner, self.reentrant = nn.Linear(3, 3), nn.Linear(3, 3), reentrant

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)
            return y

    assert calls_of(Checkpointed(False), (3,)) == Calls(frozenset(), True)
    assert calls_of(Checkpointed(True), (3,)) == Calls(frozenset(), False)  # its calls are those of the recomputation


def test_one_that_looks_at_its_values_tells_nothing() -> None:
    class Looks(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's
            assert input.sum().item() != 0.5
            return super().forward(input)

    assert calls_of(Looks(3, 3), (3,)) is None


def test_the_network_and_the_random_state_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout())
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    calls_of(model, (3,))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
