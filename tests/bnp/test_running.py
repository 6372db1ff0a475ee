"""The running values: kept, loaded, and following a model that is cast or moved."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnpbench.bnp import BNP
from tests.support.oracle import Watched


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def backward(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    model(torch.randn(5, 3, generator=generator, dtype=torch.float64)).square().mean().backward()


def test_state_round_trip() -> None:
    model, twin = network(), network()
    bnp, other = BNP(model), BNP(twin)
    backward(model)
    bnp.precondition()
    state = bnp.state_dict()
    assert list(state) == ["0.running_mean", "0.running_var", "2.running_mean", "2.running_var"]
    assert (state["0.running_mean"].shape, state["2.running_var"].shape) == ((3,), (4,))
    other.load_state_dict(state)
    for net, preconditioner in ((model, bnp), (twin, other)):
        net.zero_grad()
        backward(net, seed=1)
        preconditioner.precondition()
    assert model[0].weight.grad.equal(twin[0].weight.grad)
    assert not state["0.running_mean"].equal(bnp.state_dict()["0.running_mean"]), "a state must be a copy"


def test_a_state_of_another_model_is_refused_whole() -> None:
    bnp = BNP(network())
    state = bnp.state_dict()
    for bad, message in (
        ({k: v for k, v in state.items() if k != "2.running_var"}, "missing .*2.running_var"),
        ({**state, "9.running_mean": torch.zeros(3)}, "unexpected .*9.running_mean"),
        ({**state, "0.running_mean": torch.full((3,), 7.0), "2.running_var": torch.zeros(9)}, "2.running_var"),
    ):
        with pytest.raises(ValueError, match=message):
            bnp.load_state_dict(bad)
    assert not bnp.state_dict()["0.running_mean"].any()


def test_a_model_is_cast_up_and_down_as_a_whole_and_layer_by_layer() -> None:
    """Also between the backward pass and the step, and with a single row."""
    model = network()
    watched, bnp = Watched(model), BNP(model)
    orders = ["0 float", "2 float", "float", "0 double", "double", "bfloat16", "float", "double"]
    for number, order in enumerate(orders):
        *names, dtype = order.split()
        model.zero_grad()
        rows = torch.randn(1 + number % 2, 3, dtype=torch.float64)
        hidden = model[0](rows.to(model[0].weight.dtype)).tanh()
        model[2](hidden.to(model[2].weight.dtype)).square().mean().backward()
        getattr(model[int(names[0])] if names else model, dtype)()
        watched.check(bnp, tolerance=1e-2 if torch.bfloat16 in (model[0].weight.dtype, hidden.dtype) else 1e-5)
        wide = any(layer.weight.dtype == torch.float64 for layer in (model[0], model[2]))
        assert all(v.dtype == (torch.float64 if wide else torch.float32) for v in bnp.state_dict().values())


def test_a_model_that_is_cast_later_keeps_its_statistics() -> None:
    model = network().float()
    bnp = BNP(model)
    model(torch.randn(4, 3)).sum().backward()
    bnp.precondition()
    before = bnp.state_dict()["0.running_mean"]
    model.zero_grad()
    model.double()
    backward(model)
    bnp.precondition()
    after = bnp.state_dict()["0.running_mean"]
    assert after.dtype == torch.float64
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(after, 0.99 * before.double() + 0.01 * rows.mean(0), rtol=1e-12, atol=1e-14)
