"""The object: which layers it takes, how it is attached, stored, copied and removed."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from bnpbench.bnp import BNP
from bnpbench.bnp.layer import Layer
from bnpbench.bnp.lean import Linear
from bnpbench.errors import StatisticsError
from tests.support.oracle import Watched


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def backward(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    model(torch.randn(5, 3, generator=generator, dtype=torch.float64)).square().mean().backward()


def test_its_representation_says_what_it_does() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    bnp = BNP(model, rho=0.9, count="forward")
    assert repr(bnp).splitlines() == [
        "BNP(rho=0.9, eps1=0.01, eps2=0.0001, scale=True, center=True, standardize=True, count='forward', "
        "statistics='running')",
        "  preconditions 2: '0', '2'",
        "  leaves alone 1: '1'",
        "  when precondition() is called",
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = bnp.attach(optimizer)
    assert "1 attached optimizer steps" in repr(bnp)
    handle.remove()
    assert "precondition() is called" in repr(bnp)


def test_another_bnp_is_welcome_after_removal_and_on_other_layers() -> None:
    model = network()
    first = BNP(model, layers=lambda name, module: name == "0")
    second = BNP(model, layers=lambda name, module: name == "2")
    watched = Watched(model)
    backward(model)
    expected = {
        name: oracle.step(watched.inputs[name], oracle.layer.weight.grad, oracle.layer.bias.grad)
        for name, oracle in watched.oracles.items()
    }
    first.precondition()
    second.precondition()
    for name, value in expected.items():
        torch.testing.assert_close(watched.layers[name].weight.grad, value.weight, rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="'0' is tracked by another BNP"):
        BNP(model)
    first.remove()
    second.remove()
    assert BNP(model).layers == ("0", "2")


def test_the_model_stays_what_it_was() -> None:
    model = network()
    kind, keys = type(model), list(model.state_dict())
    parameters = [name for name, _ in model.named_parameters()]
    bnp = BNP(model)
    backward(model)
    bnp.precondition()
    assert (type(model), list(model.state_dict())) == (kind, keys)
    assert [name for name, _ in model.named_parameters()] == parameters
    bnp.remove()
    assert not any(module._forward_hooks or module._forward_hooks_with_kwargs for module in model.modules())


@pytest.mark.parametrize("copied", ["deepcopy", "pickle", "torch.save"])
def test_copies_carry_no_live_hook(copied: str) -> None:
    model = network()
    bnp = BNP(model)
    backward(model)
    if copied == "deepcopy":
        twin = copy.deepcopy(model)
    elif copied == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    else:
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
    reference = network()
    reference_bnp = BNP(reference)
    backward(reference)
    backward(twin, seed=1)  # counts for nobody
    bnp.precondition()
    reference_bnp.precondition()
    assert all(value.equal(reference_bnp.state_dict()[key]) for key, value in bnp.state_dict().items())
    own = BNP(twin)
    twin.zero_grad()
    backward(twin)
    own.precondition()
    assert all(value.equal(reference_bnp.state_dict()[key]) for key, value in own.state_dict().items())


def test_bnp_itself_cannot_be_copied() -> None:
    bnp = BNP(network())
    for action in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="state_dict"):
            action(bnp)


def test_nothing_keeps_a_graph_alive() -> None:
    """Statistics are held, activations are not."""
    model = network()
    bnp = BNP(model)
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    hidden = model[0](rows)
    reference = weakref.ref(hidden)
    loss = model[1:](hidden).sum()
    del hidden
    loss.backward()
    del loss
    gc.collect()
    assert reference() is None
    bnp.precondition()


def test_attach_preconditions_before_each_step() -> None:
    by_hand, attached = network(), network()
    bnps = BNP(by_hand), BNP(attached)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (by_hand, attached)]
    handle = bnps[1].attach(optimizers[1])
    for seed in range(3):
        for model, optimizer in zip((by_hand, attached), optimizers, strict=True):
            optimizer.zero_grad()
            backward(model, seed)
            if model is by_hand:
                bnps[0].precondition()
            optimizer.step()
    for a, b in zip(by_hand.parameters(), attached.parameters(), strict=True):
        assert a.equal(b)
    handle.remove()
    optimizers[1].zero_grad()
    backward(attached)
    raw = attached[0].weight.grad.clone()
    optimizers[1].step()
    assert attached[0].weight.grad.equal(raw)


def test_attach_refuses_closures_and_optimizers_of_other_models() -> None:
    model = network()
    bnp = BNP(model)
    with pytest.raises(ValueError, match="owns neither weight nor trained bias of a layer that BNP tracks"):
        bnp.attach(torch.optim.SGD(network().parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bnp.attach(optimizer)
    backward(model)
    weight = model[0].weight.detach().clone()
    for step in (lambda: optimizer.step(lambda: 0.0), lambda: optimizer.step(closure=lambda: 0.0)):
        with pytest.raises(ValueError, match="closure"):
            step()
    assert model[0].weight.equal(weight)
    optimizer.step(closure=None)
    assert not model[0].weight.equal(weight)


def test_attach_touches_only_the_layers_of_that_optimizer() -> None:
    model = network()
    watched, bnp = Watched(model), BNP(model)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    bnp.attach(optimizer)
    backward(model)
    raw = model[0].weight.grad.clone()
    optimizer.step()
    assert model[0].weight.grad.equal(raw)
    assert bnp.state_dict()["0.running_mean"].equal(torch.zeros(3, dtype=torch.float64))
    assert not bnp.state_dict()["2.running_mean"].equal(torch.zeros(4, dtype=torch.float64))
    expected = watched.oracles["0"].step(watched.inputs["0"], raw, model[0].bias.grad)
    bnp.attach(later := torch.optim.SGD(model[0].parameters(), lr=0.1))
    later.step()
    torch.testing.assert_close(model[0].weight.grad, expected.weight, rtol=1e-12, atol=1e-14)


def parted(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    """Muon on the weights, AdamW on the biases of the same layers."""
    weights, biases = ([p for p in model.parameters() if p.dim() == dim] for dim in (2, 1))
    return [torch.optim.Muon(weights, lr=0.1), torch.optim.AdamW(biases, lr=0.1)]


@pytest.mark.parametrize("count", ["backward", "forward"])
@pytest.mark.parametrize("orders", [[(0, 1)] * 3, [(1, 0)] * 3, [(0, 1), (1, 0), (0, 1)]], ids=str)
def test_several_optimizers_of_the_same_layers_precondition_once_in_any_order(
    orders: list[tuple[int, int]], count: Any
) -> None:
    by_hand, attached = network(), network()
    bnps = [BNP(model, count=count) for model in (by_hand, attached)]
    both = [parted(model) for model in (by_hand, attached)]
    for optimizer in both[1]:
        bnps[1].attach(optimizer)
    for seed, order in enumerate(orders):
        for model, optimizers in zip((by_hand, attached), both, strict=True):
            model.zero_grad()
            backward(model, seed)
            backward(model, 10 + seed)  # micro-batches are of one step
            if model is by_hand:
                bnps[0].precondition()
            for place in order:
                optimizers[place].step()
    for one, other in zip(by_hand.parameters(), attached.parameters(), strict=True):
        assert one.equal(other)
    assert all(value.equal(bnps[0].state_dict()[key]) for key, value in bnps[1].state_dict().items())
    with pytest.raises(StatisticsError, match="'0' has a gradient"):
        both[1][0].step()  # a second step on the same gradients


def test_a_step_that_one_of_them_leaves_out_takes_nothing_from_the_next() -> None:
    """As GradScaler leaves out the step of an optimizer whose gradients overflowed."""
    by_hand, attached = network(), network()
    bnps = [BNP(model) for model in (by_hand, attached)]
    both = [parted(model) for model in (by_hand, attached)]
    for optimizer in both[1]:
        bnps[1].attach(optimizer)
    for seed, order in enumerate([(0,), (1, 0), (1,), (0, 1)]):
        for model, optimizers in zip((by_hand, attached), both, strict=True):
            model.zero_grad()
            backward(model, seed)
            if model is by_hand:
                bnps[0].precondition()
            for place in order:
                optimizers[place].step()
    for one, other in zip(by_hand.parameters(), attached.parameters(), strict=True):
        assert one.equal(other)


@pytest.mark.parametrize(("owner", "own", "other"), [(0, "weight", "bias"), (1, "bias", "weight")])
def test_the_owner_of_the_other_part_of_a_layer_has_to_be_attached_too(owner: int, own: str, other: str) -> None:
    model = network()
    bnp, optimizers = BNP(model), parted(model)
    bnp.attach(optimizers[owner])
    backward(model)
    raw = model[0].weight.grad.clone()
    with pytest.raises(ValueError, match=f"owns the {own} of layer '0' but not its {other}: attach"):
        optimizers[owner].step()
    assert model[0].weight.grad.equal(raw)
    handle = bnp.attach(optimizers[1 - owner])
    optimizers[owner].step()
    assert not model[0].weight.grad.equal(raw)
    handle.remove()
    model.zero_grad()
    backward(model)
    with pytest.raises(ValueError, match=f"not its {other}"):
        optimizers[owner].step()


def test_optimizers_of_other_layers_leave_each_others_rows() -> None:
    """One that steps alone, as the generator's of two networks, folds no rows of the other's layers."""
    model = network()
    bnp = BNP(model)
    optimizers = [torch.optim.SGD(model[place].parameters(), lr=0.1) for place in (0, 2)]
    for optimizer in optimizers:
        bnp.attach(optimizer)
    backward(model)
    optimizers[0].step()
    assert bnp.state_dict()["2.running_mean"].equal(torch.zeros(4, dtype=torch.float64))
    optimizers[1].step()
    assert not bnp.state_dict()["2.running_mean"].equal(torch.zeros(4, dtype=torch.float64))


def test_remove_also_detaches() -> None:
    model = network()
    bnp = BNP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bnp.attach(optimizer)
    bnp.remove()
    backward(model)
    raw = model[0].weight.grad.clone()
    optimizer.step()
    assert model[0].weight.grad.equal(raw)


@pytest.mark.parametrize(
    "options", [{"statistics": "moving"}, {"count": "twice"}, {"rho": 1.5}, {"eps1": -1.0}, {"eps2": -1e-9}]
)
def test_options_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|rho in"):
        BNP(network(), **options)


def test_ablations() -> None:
    """center=False takes mu = 0 in steps 4 and 5, standardize=False takes sigma~^2 = 1; both leave G/q^2."""
    for center in (True, False):
        for standardize in (True, False):
            model = nn.Linear(3, 2).double()
            bnp = BNP(model, center=center, standardize=standardize)
            rows = 1 + torch.randn(2, 3, dtype=torch.float64)
            model(rows).square().sum().backward()
            weight, bias = model.weight.grad.clone(), model.bias.grad.clone()
            bnp.precondition()
            mean = bnp.state_dict()["running_mean"] * center
            variance = bnp.state_dict()["running_var"]
            damped = variance + 0.01 * variance.max() + 1e-4 if standardize else torch.ones(3, dtype=torch.float64)
            expected = (weight - bias[:, None] * mean) / damped / 1.5
            torch.testing.assert_close(model.weight.grad, expected, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(model.bias.grad, bias / 1.5 - expected @ mean, rtol=1e-12, atol=1e-14)


@pytest.mark.regression
def test_after_a_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It left its terms behind, and the next step was given them."""
    model = network()
    watched, bnp = Watched(model), BNP(model, rho=0.0)
    backward(model)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(Layer, "precondition", full)
        with pytest.raises(torch.OutOfMemoryError):
            bnp.precondition()
    model.zero_grad()
    watched.forget()
    backward(model, seed=1)
    bnp.precondition()
    torch.testing.assert_close(bnp.state_dict()["0.running_mean"], watched.inputs["0"][0].mean(0))


# --- layers that are replaced ------------------------------------------------------------------


def three(lean: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    kind: Any = Linear if lean else nn.Linear
    return nn.Sequential(kind(3, 4), nn.Tanh(), kind(4, 5), nn.Tanh(), kind(5, 2)).double()


@pytest.mark.regression
@pytest.mark.parametrize("new", [nn.Linear(4, 5), nn.Bilinear(4, 4, 5), None], ids=["like it", "another", "taken out"])
@pytest.mark.parametrize("attached", [True, False], ids=["attached", "called"])
def test_a_layer_that_was_replaced_is_left_alone_with_one_warning(new: nn.Module | None, attached: bool) -> None:
    model = three()
    watched, bnp = Watched(model), BNP(model)
    backward(model)
    watched.check(bnp, tolerance=1e-9)
    old, before = model[2], bnp.state_dict()
    if isinstance(new, nn.Bilinear):
        model[2] = nn.Sequential(nn.Linear(4, 5), nn.Identity())  # whose layer is called otherwise
    else:
        model[2] = nn.Linear(4, 5) if new is not None else nn.Identity()
    if new is None:
        model[4] = nn.Linear(4, 2)
    model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = optimizer.step if attached else bnp.precondition
    gone = {"2"} if new is not None else {"2", "4"}
    del watched.layers["2"]
    if new is None:
        del watched.layers["4"]
    for number in (1, 2, 3):
        model.zero_grad()
        backward(model, number)
        raw = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if attached and number == 1:
                handle = bnp.attach(optimizer)
            expected = watched_step(watched, raw)
            step()
        names = ", ".join(map(repr, sorted(gone)))
        assert [str(one.message).startswith(f"layer {names} is no longer part") for one in told][:1] == [True] * (
            number == 1
        )
        assert len(told) <= (2 if isinstance(new, nn.Bilinear) else 1) * (number == 1)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, expected.get(name, raw[name]), rtol=1e-9, atol=1e-12)
    assert set(bnp.layers) == {"0", "2", "4"} - gone
    assert all("replaced" in bnp.skipped[name] for name in gone)
    state = bnp.state_dict()
    assert state.keys() == before.keys()
    for name in gone:
        assert torch.equal(state[f"{name}.running_mean"], before[f"{name}.running_mean"])
        assert torch.equal(state[f"{name}.running_var"], before[f"{name}.running_var"])
    assert not torch.equal(state["0.running_mean"], before["0.running_mean"])
    bnp.load_state_dict(before)
    assert not old._forward_hooks
    if attached:
        handle.remove()
    bnp.remove()
    assert not any(module._forward_hooks for module in model.modules() if module not in watched.oracles)


def watched_step(watched: Watched, raw: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the oracles of the layers that are left make of the gradients."""
    found = {}
    for name in watched.layers:
        expected = watched.oracles[name].step(watched.inputs[name], raw[f"{name}.weight"], raw[f"{name}.bias"])
        watched.inputs[name].clear()
        found |= {f"{name}.weight": expected.weight, f"{name}.bias": expected.bias}
    return found


@pytest.mark.regression
@pytest.mark.parametrize("moment", ["between steps", "before the backward pass"])
def test_in_the_lean_form_too(moment: str) -> None:
    """Where statistics are final in the backward pass: the other layers are those of the plain form."""
    lean_model, plain_model = three(lean=True), three(lean=True)
    lean = BNP(lean_model, count="forward", lean=lambda name, module: True)
    plain = BNP(plain_model, count="forward")
    x = torch.randn(6, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    fresh = Linear(4, 5).double()
    for number, batch in enumerate(x):
        for bnp, model in ((lean, lean_model), (plain, plain_model)):
            model.zero_grad()
            if number == 2 and moment == "between steps":
                model[2] = copy.deepcopy(fresh)
            output = model(batch)
            if number == 2 and moment != "between steps":
                model[2] = copy.deepcopy(fresh)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                output.square().mean().backward()
                bnp.precondition()
            assert len(told) == (number == 2)
        for ours, theirs in zip(lean_model.parameters(), plain_model.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)
    assert lean.lean == ("0", "4")
    assert lean.form == "lean"
