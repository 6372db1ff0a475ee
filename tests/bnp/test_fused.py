"""The fused form: the same step as the plain one, by a function that a compiler made."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from bnpbench.bnp import BNP, fused
from bnpbench.bnp.fused import Fused, Layout, Place, pays
from bnpbench.bnp.joined import joins
from bnpbench.bnp.lean import Linear
from bnpbench.methods.preconditioning import Preconditioning, Training
from tests.support.engines import SGD, disagreement
from tests.support.oracle import Watched
from tests.support.training import trainer

Places = tuple[Place, ...]

OPTIONS: list[dict[str, Any]] = [
    {}, {"statistics": "batch"}, {"scale": False}, {"center": False}, {"standardize": False}, {"rho": 0.5, "eps1": 0.3},
]  # fmt: skip


def network() -> nn.Sequential:
    """Every kind of layer, with a bias and without."""
    torch.manual_seed(0)
    last = nn.Conv2d(6, 4, 2).to(memory_format=torch.channels_last)
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, groups=2), nn.ReLU(), nn.Conv2d(6, 6, 2, groups=3, bias=False), nn.Tanh(),
        nn.Conv2d(6, 6, 2, bias=False), last, nn.Flatten(), nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3),
    ).double()  # fmt: skip


def rows(count: int, seed: int) -> Tensor:
    return 1 + torch.randn(count, 4, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def backward(model: nn.Module, inputs: Tensor) -> None:
    model.zero_grad()
    model(inputs).square().mean().backward()


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Layout, Places]]:
    """What is to be compiled runs as it stands, and is listed."""
    asked: list[tuple[Layout, Places]] = []

    def taken(layout: Layout, places: Places) -> Callable[..., None]:
        asked.append((layout, places))
        return layout.step

    monkeypatch.setattr(fused, "compiled", taken)
    return asked


def by_rows(layout: Layout, places: Places) -> Callable[..., None]:
    """The formulas for a GPU, on the CPU."""
    return replace(layout, device=torch.device("cuda")).step


def compare(one: nn.Module, other: nn.Module, tolerance: float) -> None:
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        if theirs.grad is None:
            continue
        assert ours.grad is not None
        assert ours.grad.stride() == theirs.grad.stride()
        assert (ours.grad - theirs.grad).abs().max() <= tolerance * theirs.grad.abs().max()


def test_compiled_steps_equal_the_matrix_form() -> None:
    """Also for other batch sizes, of which one function knows nothing, and with a single example."""
    model = network()
    watched, bnp = Watched(model), BNP(model, fused=True)
    for seed, count in enumerate((5, 1, 9)):
        backward(model, rows(count, seed))
        watched.check(bnp)
    assert (bnp.fused, bnp.unfused, bnp.form) == (bnp.layers, None, "fused")


def test_another_process_finds_the_function_in_the_cache() -> None:
    """Its own memory of layouts is forgotten here instead."""
    found = []
    with fresh_cache():
        for seed in range(2):
            model = dense()
            fused.compiled.cache_clear()
            before = counters["inductor"]["fxgraph_cache_hit"]
            watched, bnp = Watched(model), BNP(model, fused=True)
            backward(model, 1 + torch.randn(6, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
            watched.check(bnp)
            assert bnp.form == "fused"
            found.append(counters["inductor"]["fxgraph_cache_hit"] - before)
    assert found == [0, 1]


def test_a_compiled_float32_step_equals_the_plain_one() -> None:
    model = dense().float()
    twin = copy.deepcopy(model)
    bnp, plain = BNP(model, fused=True), BNP(twin, fused=False)
    for seed in range(3):
        inputs = 1 + torch.randn(4, 7, generator=torch.Generator().manual_seed(seed))
        backward(model, inputs)
        backward(twin, inputs)
        bnp.precondition()
        plain.precondition()
        compare(model, twin, 1e-5)
    assert (bnp.form, plain.form) == ("fused", "plain")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_equal_the_plain_ones(options: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "compiled", by_rows if device == "cuda" else lambda layout, places: layout.step)
    model, twin = network(), network()
    bnp, plain = BNP(model, fused=True, **options), BNP(twin, fused=False, **options)
    for seed, count in enumerate((5, 2, 9)):
        backward(model, rows(count, seed))
        backward(twin, rows(count, seed))
        bnp.precondition()
        plain.precondition()
        compare(model, twin, 1e-11)
    assert bnp.fused == bnp.layers


def test_scales_that_only_the_device_knows(uncompiled: list[tuple[Layout, Places]]) -> None:
    """Gradients of two backward passes add up: whether the first were dropped in place only the device knows."""
    model = network()
    watched, bnp = Watched(model), BNP(model, fused=True)
    for seed in range(3):
        backward(model, rows(4, 2 * seed))
        model(rows(3, 2 * seed + 1)).square().mean().backward()
        watched.check(bnp)
    assert bnp.fused == bnp.layers
    assert len(uncompiled) == 1


def test_layers_without_gradients_and_in_other_precision_are_plain(uncompiled: list[tuple[Layout, Places]]) -> None:
    model = dense()
    model[2].float()
    watched, bnp = Watched(model), BNP(model, fused=True)
    model[2](model[1](model[0](torch.randn(6, 7, dtype=torch.float64))).float()).square().mean().backward()
    watched.check(bnp, tolerance=1e-5)
    assert (bnp.fused, bnp.form) == (("0",), "fused: 0")
    assert [len(layout.gradients) for layout, _ in uncompiled] == [1]


def test_a_model_that_is_cast_is_compiled_anew(uncompiled: list[tuple[Layout, Places]]) -> None:
    model = dense()
    watched, bnp = Watched(model), BNP(model, fused=True)
    for dtype in (torch.float64, torch.float64, torch.float32, torch.float32):
        model.to(dtype)
        backward(model, torch.randn(6, 7, dtype=torch.float64).to(dtype))
        watched.check(bnp, tolerance=1e-5)
    assert [places[0][2] for _, places in uncompiled] == [torch.float64, torch.float32]


def test_many_layouts_are_not_compiled_one_after_the_other(
    uncompiled: list[tuple[Layout, Places]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that have gradients in some steps only, in ever other sets."""
    monkeypatch.setattr(fused, "LAYOUTS", 2)
    model = nn.ModuleList(nn.Linear(3, 2) for _ in range(3)).double()
    bnp, plain = BNP(model, fused=True), copy.deepcopy(model)
    reference = BNP(plain, fused=False)
    for active in ([0], [1], [0, 1], [2], [0]):
        for layers, one in ((model, bnp), (plain, reference)):
            layers.zero_grad()
            inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            sum(layers[number](inputs).square().sum() for number in active).backward()
            one.precondition()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert (ours.grad is None) == (theirs.grad is None)
            if ours.grad is not None:
                torch.testing.assert_close(ours.grad, theirs.grad)
        assert bool(bnp.fused) == (active in ([0], [1]))
    assert len(uncompiled) == 2
    assert bnp.unfused is not None
    assert "layouts" in bnp.unfused


@pytest.mark.parametrize("late", [False, True])
def test_a_compiler_that_fails_is_told_once_and_does_no_harm(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it compiles, and when what it made is called, half way through the gradients."""
    asked = []

    def failing(layout: Layout, places: Places) -> Callable[..., None]:
        asked.append((layout, places))
        if not late:
            raise RuntimeError("no compiler\nand more of it")

        def call(values: Tensor, factors: Tensor, *gradients: Tensor) -> None:
            gradients[0].zero_()
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(fused, "compiled", failing)
    model = dense()
    watched, bnp = Watched(model), BNP(model, fused=True)
    backward(model, torch.randn(6, 7, dtype=torch.float64))
    with pytest.warns(UserWarning, match="plain form.*RuntimeError: no compiler"):
        watched.check(bnp)
    backward(model, torch.randn(6, 7, dtype=torch.float64))
    watched.check(bnp)
    assert (len(asked), bnp.fused, bnp.form) == (1, (), "plain")
    assert bnp.unfused is not None
    assert "no compiler" in bnp.unfused


def test_operators_are_counted_in_the_plain_form(uncompiled: list[tuple[Layout, Places]]) -> None:
    model = dense()
    bnp = BNP(model, fused=True)
    backward(model, torch.randn(6, 7, dtype=torch.float64))
    with FlopCounterMode(display=False):
        bnp.precondition()
    assert not uncompiled


def test_which_form_is_taken_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not pays("cpu")
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert not pays("cuda")
    monkeypatch.setattr(fused, "find_spec", lambda name: object())
    assert pays("cuda")
    assert [Fused(asked, []).wanted("cuda") for asked in ("auto", True, False)] == [True, True, False]
    assert [Fused(asked, []).wanted("cpu") for asked in ("auto", True, False)] == [False, True, False]


def test_a_layer_has_one_form() -> None:
    model = nn.Sequential(Linear(3, 2))
    with pytest.raises(ValueError, match="lean= or fused=True"):
        BNP(model, count="forward", lean=lambda name, module: True, fused=True)
    with pytest.raises(ValueError, match="fused must be"):
        BNP(model, fused="always")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "engine", "device", "lean", "wanted"),
    [
        ("auto", "eager", "cpu", True, False),
        ("auto", "eager", "cuda", False, True),
        ("auto", "graphed", "cuda", True, False),
        ("plain", "eager", "cuda", False, False),
        ("fused", "eager", "cpu", False, True),
        ("fused", "compiled", "cpu", False, True),
    ],
)
def test_a_method_chooses_one(
    form: Any, engine: str, device: str, lean: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "find_spec", lambda name: object())
    model = nn.Sequential(Linear(4096, 1024))
    bnp = Preconditioning(form=form).bnp(model, Training(1, engine=engine, device=device))
    assert (bool(bnp.lean), bool(bnp.fused)) == (lean, wanted)


def test_a_cell_tells_its_form_and_compiles_before_it_is_timed(uncompiled: list[tuple[Layout, Places]]) -> None:
    ours = trainer(method={"kind": "bnp", "form": "fused"})
    before = copy.deepcopy(ours.state.snapshot())
    ours.prepare()
    assert len(uncompiled) == 1
    after = ours.state.snapshot()
    assert all(torch.equal(before["model"][name], after["model"][name]) for name in before["model"])
    assert (ours.columns()["bnp_form"], ours.columns()["engine_active"], ours.unfused) == ("fused", "eager", None)
    ours.epoch()
    assert len(uncompiled) == 1


def test_a_step_that_is_compiled_takes_it_in() -> None:
    """Eager steps by a function of their own, compiled ones by their graph: the same steps."""
    assert disagreement("cnn", {"kind": "bnp", "form": "fused"}, SGD, torch.float64) < 1e-11


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
