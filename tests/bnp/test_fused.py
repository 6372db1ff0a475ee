"""The fused form: the same step as the plain one, by a function that a compiler made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.utils.flop_counter import FlopCounterMode

from bnpbench.bnp import BNP, fused
from bnpbench.bnp.fused import Fused, Layout, pays
from bnpbench.bnp.lean import Linear
from bnpbench.methods.preconditioning import Preconditioning, Training
from tests.support.engines import SGD, disagreement
from tests.support.fused import Places, backward, by_rows, compare, dense, network, rows
from tests.support.oracle import Watched
from tests.support.training import trainer

OPTIONS: list[dict[str, Any]] = [
    {}, {"statistics": "batch"}, {"scale": False}, {"center": False}, {"standardize": False}, {"rho": 0.5, "eps1": 0.3},
]  # fmt: skip


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
