"""The update of an optimizer inside BNP's fused form."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook

from bnpbench.bnp import BNP, fused
from bnpbench.bnp.fused import Layout
from bnpbench.bnp.joined import joins
from tests.support.engines import SGD
from tests.support.fused import Places, backward, by_rows, compare, dense, network, rows
from tests.support.training import trainer

SGDS: list[dict[str, Any]] = [
    {}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"momentum": 0.5, "dampening": 0.2, "weight_decay": 0.1},
]  # fmt: skip
ADAMS: list[dict[str, Any]] = [{}, {"weight_decay": 0.1, "eps": 1e-3}, {"betas": (0.5, 0.9)}]
OPTIMIZERS = [
    *((torch.optim.SGD, options) for options in SGDS),
    *((kind, options) for kind in (torch.optim.Adam, torch.optim.AdamW) for options in ADAMS),
]


class Pair:
    """A model whose update joins the fused form, and its twin, in the plain form and with torch's own update.

    Half of the parameters are in a group with other options; one norm is in it that is not preconditioned.
    """

    def __init__(self, model: nn.Sequential, kind: Any, options: dict[str, Any]) -> None:
        self.models = model, copy.deepcopy(model)
        self.bnps = tuple(BNP(one, fused=one is model) for one in self.models)
        self.rates = tuple(torch.tensor(0.0625, dtype=next(model.parameters()).dtype) for _ in range(2))
        self.optimizers = []
        for one, rate in zip(self.models, self.rates, strict=True):
            parameters = list(one.parameters())
            groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "weight_decay": 0.3}]
            optimizer = kind(groups, **options, fused=one is model)
            for group in optimizer.param_groups:
                group["lr"] = rate
            self.optimizers.append(optimizer)

    def step(self, inputs: Tensor) -> bool:
        """Whether the update was joined."""
        for model in self.models:
            backward(model, inputs)
        return self.update()

    def update(self) -> bool:
        """Whether it was joined."""
        model, optimizer = self.models[0], self.optimizers[0]
        done = self.bnps[0].precondition_with(optimizer)
        joined = model[0].weight.grad is None
        assert done is all(parameter.grad is None for parameter in model.parameters())
        if not done:
            optimizer.step()
        self.bnps[1].precondition()
        self.optimizers[1].step()
        return joined

    def agree(self, tolerance: float) -> None:
        if self.models[0][0].weight.grad is not None:
            compare(*self.models, tolerance)
        ours, theirs = (optimizer.state_dict()["state"] for optimizer in self.optimizers)
        assert [list(state) for state in ours.values()] == [list(state) for state in theirs.values()]
        running, other = (bnp.state_dict() for bnp in self.bnps)
        pairs = [*zip(*(model.parameters() for model in self.models), strict=True)]
        pairs += [(running[name], other[name]) for name in running]
        pairs += [
            (state[name], theirs[p][name]) for p, state in ours.items() for name in state if state[name] is not None
        ]
        for one, two in pairs:
            assert (one - two).abs().max() <= tolerance * two.abs().max().clamp(min=1e-3)


def normed() -> nn.Sequential:
    """``network()`` with parameters that BNP leaves alone, and with weights that do not move."""
    model = network()
    model.insert(1, nn.GroupNorm(2, 6).double())
    model[3].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=str)
def test_an_update_that_joins_is_the_optimizers(
    kind: Any, options: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fresh random inputs; with its state, which the optimizer's own first step makes; by rates that change."""
    monkeypatch.setattr(fused, "compiled", by_rows if device == "cuda" else lambda layout, places: layout.step)
    pair = Pair(normed(), kind, options)
    for seed, count in enumerate((5, 1, 9, 2)):
        assert pair.step(rows(count, seed)) is (seed > 0)
        pair.agree(1e-9)
        for rate in pair.rates:
            rate.mul_(0.7)
    for optimizer in pair.optimizers:  # somebody else changes an option, and puts back a state from disk
        optimizer.param_groups[0]["weight_decay"] = 0.7
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert pair.step(rows(4, 7))
    pair.agree(1e-9)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(torch.optim.SGD, SGDS[2]), (torch.optim.AdamW, ADAMS[1])],
    ids=["sgd", "adamw"],
)
def test_a_compiled_update_is_the_optimizers(kind: Any, options: dict[str, Any]) -> None:
    pair = Pair(normed().float(), kind, options)
    for seed, count in enumerate((5, 3, 1, 6)):
        assert pair.step(rows(count, seed).float()) is (seed > 0)
        pair.agree(1e-4)
    assert pair.bnps[0].form.startswith("fused")


def flat(count: int, seed: int) -> Tensor:
    return 1 + torch.randn(count, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def other_rate(pair: Pair) -> None:
    pair.rates = tuple(rate.double() for rate in pair.rates)
    for optimizer, rate in zip(pair.optimizers, pair.rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate


def reloaded_when_cast(pair: Pair) -> None:
    for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
        model.double()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def other_order(pair: Pair) -> None:
    for optimizer in pair.optimizers:
        for state in optimizer.state.values():
            buffer = state["momentum_buffer"]
            state["momentum_buffer"] = buffer.t().contiguous().t() if buffer.dim() == 2 else buffer


@pytest.mark.regression
@pytest.mark.parametrize("change", [other_rate, reloaded_when_cast, other_order])
def test_what_it_was_compiled_for_may_change_between_steps(
    change: Callable[[Pair], None], request: pytest.FixtureRequest
) -> None:
    """A compiled function reads memory as it lay: it made 1e18 of a momentum that had become float64."""
    asked = [] if change is other_rate else request.getfixturevalue("uncompiled")  # one is really compiled
    pair = Pair(dense().float(), torch.optim.SGD, {"momentum": 0.9})
    for seed in range(6):
        if seed == 3:
            change(pair)
        assert pair.step(flat(5, seed).to(pair.models[0][0].weight.dtype)) is (seed > 0)
        pair.agree(1e-4)
    assert len(asked) == (0 if change is other_rate else 2)


@pytest.mark.regression
def test_batch_sizes_and_options_that_change_leave_the_form_fused(
    uncompiled: list[tuple[Layout, Places]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update was joined at eight of them, and at all others the form was plain."""
    monkeypatch.setattr(fused, "LAYOUTS", 2)
    for changing in (True, False):
        pair = Pair(dense(), torch.optim.SGD, {})
        for seed in range(8):
            for optimizer in pair.optimizers:
                optimizer.param_groups[0]["weight_decay"] = 0.1 if changing else 0.1 * seed
            joined = pair.step(flat(2 + seed if changing else 4, seed))
            assert joined is (seed in (1, 2))
            pair.agree(1e-9)
        assert (pair.bnps[0].form, pair.bnps[0].unfused) == ("fused", None)


def test_scales_on_the_device_and_an_update(uncompiled: list[tuple[Layout, Places]]) -> None:
    pair = Pair(normed(), torch.optim.SGD, {})
    for seed in range(3):
        for model in pair.models:
            model.zero_grad()
            for part in (0, 1):
                model(rows(3 + part, 2 * seed + part)).square().mean().backward()
        assert pair.update() is (seed > 0)
        pair.agree(1e-9)
    assert len(uncompiled) == 1


def test_nothing_is_left_to_an_optimizer_where_every_parameter_is_preconditioned(
    uncompiled: list[tuple[Layout, Places]],
) -> None:
    """Its own step, called all the same, changes nothing."""
    pair = Pair(dense(), torch.optim.AdamW, {"weight_decay": 0.1})
    for seed in range(3):
        assert pair.step(torch.randn(6, 7, dtype=torch.float64)) is (seed > 0)
    pair.optimizers[0].step()
    pair.agree(1e-9)


def own_step(optimizer: Any) -> None:
    optimizer.step = optimizer.step


def number(optimizer: Any) -> None:
    optimizer.param_groups[1]["lr"] = 0.0625


WATCHED: list[Callable[[Any], object]] = [
    own_step,  # as learning rate schedulers do
    number,
    lambda optimizer: optimizer.register_step_pre_hook(lambda *_: None),
    lambda optimizer: optimizer.register_step_post_hook(lambda *_: None),
]


@pytest.mark.parametrize("change", WATCHED)
def test_an_update_that_is_watched_does_not_join(
    change: Callable[[Any], object], uncompiled: list[tuple[Layout, Places]]
) -> None:
    pair = Pair(normed(), torch.optim.SGD, {})
    change(pair.optimizers[0])
    assert not any(pair.step(rows(4, seed)) for seed in range(2))
    pair.agree(1e-9)
    assert pair.bnps[0].form.startswith("fused")


def test_an_update_that_every_optimizer_s_hook_watches_does_not_join(uncompiled: list[tuple[Layout, Places]]) -> None:
    pair, seen = Pair(normed(), torch.optim.SGD, {}), list[object]()
    hook = register_optimizer_step_post_hook(lambda *found: seen.append(found[0]))
    try:
        assert not any(pair.step(rows(4, seed)) for seed in range(2))
    finally:
        hook.remove()
    assert seen == pair.optimizers * 2
    pair.agree(1e-9)


def test_other_optimizers_do_not_join(uncompiled: list[tuple[Layout, Places]]) -> None:
    class Own(torch.optim.SGD):
        """Whatever it changes."""

    for kind, options in ((Own, {}), (torch.optim.SGD, {"maximize": True}), (torch.optim.Adam, {"amsgrad": True})):
        pair = Pair(normed(), kind, options)
        assert not any(pair.step(rows(4, seed)) for seed in range(2))
        pair.agree(1e-9)
    assert all(layout.update is None for layout, _ in uncompiled)


def test_on_a_gpu_only_an_update_without_counts_of_steps_joins() -> None:
    """Each count would be a kernel."""
    with FakeTensorMode():
        rate = torch.empty((), device="cuda")
        found = [
            kind([torch.empty(2, device="cuda")]) for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
        ]
        for optimizer in found:
            optimizer.param_groups[0]["lr"] = rate
        assert [joins(optimizer, rate.device) for optimizer in found] == [True, False, False]


def test_an_update_does_not_join_where_a_layer_is_plain(uncompiled: list[tuple[Layout, Places]]) -> None:
    """One in other precision would be preconditioned after it."""
    model = dense()
    model[2].float()
    pair = Pair(nn.Sequential(*model[:2], Float(), model[2]), torch.optim.SGD, {})
    assert not any(pair.step(torch.randn(6, 7, dtype=torch.float64)) for _ in range(2))
    pair.agree(1e-4)
    assert pair.bnps[0].form == "fused: 0"


class Float(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float()


def test_a_cell_goes_on_bit_for_bit_where_the_update_joins() -> None:
    """From a checkpoint, in another process: weights, statistics and the optimizer's state."""
    changes: dict[str, Any] = {"method": {"kind": "bnp", "form": "fused"}, "optimizer": SGD}
    whole, first = trainer(**changes), trainer(**changes)
    for one in (whole, first):
        one.prepare()
        one.epoch()
    assert whole.step.updated
    second = trainer(**changes)
    second.prepare()
    second.state.resume_from(first.state.snapshot())
    second.epochs_done = 1
    assert second.epoch()["train_loss"] == whole.epoch()["train_loss"]
    ours, theirs = (list(tensors(one.state.snapshot())) for one in (second, whole))
    assert len(ours) == len(theirs) > 15
    assert all(map(torch.equal, ours, theirs))


def tensors(state: Any) -> Iterable[Tensor]:
    if isinstance(state, Tensor):
        yield state
    for value in state.values() if isinstance(state, dict) else ():
        yield from tensors(value)


@pytest.mark.parametrize("more", [{"clip_norm": 0.1}, {"accumulate": 2}, {"optimizer": {"kind": "adam", "lr": 0.01}}])
def test_a_cell_in_which_the_update_joins_learns_as_another(more: dict[str, Any]) -> None:
    losses = {}
    for form in ("plain", "fused"):
        one = trainer(**{"method": {"kind": "bnp", "form": form}, "optimizer": SGD, **more})
        one.prepare()
        losses[form] = [one.epoch()["train_loss"] for _ in range(2)]
        assert one.step.updated is (form == "fused" and "clip_norm" not in more)
    assert losses["fused"] == pytest.approx(losses["plain"], rel=1e-4)
