"""BNP by a method's options: which form, which layers, what an ablation leaves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.errors import NotApplicable
from bnpbench.methods.preconditioning import Preconditioning, Training
from bnpbench.suite import Settings
from bnpbench.training import models
from bnpbench.training.accounting import costs
from tests.support.kinds import made
from tests.support.networks import CIFAR, normalization

NETWORKS: dict[str, Any] = {
    "fc": {"kind": "fc", "hidden": (16, 12)},
    "cnn": "cnn",
    "resnet": {"kind": "resnet", "depth": 8},
    "preactivation": {"kind": "resnet", "depth": 8, "preactivation": True},
    "resnet18": "resnet18",
}
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def model_of(method: Any, network: Any) -> nn.Module:
    torch.manual_seed(1)
    built: nn.Module = made("network", network).built(normalization(method), CIFAR, 10)
    return built


def weighted(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


# --- which layers ----------------------------------------------------------------------------


@EVERY_NETWORK
def test_every_layer_is_preconditioned_and_the_first_is_left_out_on_request(network: Any) -> None:
    model = model_of("bnp", network)
    names = list(weighted(model))
    for first, expected in [(True, names), (False, names[1:])]:
        bnp = made("method", {"kind": "bnp", "first_layer": first}).bnp(model, Training(6))
        assert list(bnp.layers) == expected
        bnp.remove()


@EVERY_NETWORK
def test_the_layer_left_out_is_the_one_that_reads_the_input(network: Any) -> None:
    model = model_of("vanilla", network)
    called: list[nn.Module] = []
    for module in weighted(model).values():
        module.register_forward_hook(lambda module, inputs, output: called.append(module))
    model(torch.rand(2, *made("network", network).reads(CIFAR)))
    assert called[0] is next(iter(weighted(model).values()))


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), ["stem", "blocks.0.0", "blocks.0.1", "blocks.1", "head"]),
        (("blocks.*",), ["blocks.0.0", "blocks.0.1", "blocks.1"]),
        (("blocks.*", "!blocks.0.*"), ["blocks.1"]),
        (("!head", "!stem"), ["blocks.0.0", "blocks.0.1", "blocks.1"]),
        (("*.[01]", "stem"), ["stem", "blocks.0.0", "blocks.0.1", "blocks.1"]),
    ],
)
def test_layers_are_chosen_by_patterns_of_their_names(patterns: tuple[str, ...], expected: list[str]) -> None:
    blocks = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 3))
    model = nn.Sequential()
    for name, module in {"stem": nn.Linear(3, 3), "blocks": blocks, "head": nn.Linear(3, 3)}.items():
        model.add_module(name, module)
    bnp = Preconditioning(layers=patterns).bnp(model, Training(6))
    assert list(bnp.layers) == expected
    assert all(bnp.skipped[name] == "left out by layers" for name in weighted(model) if name not in expected)


def test_patterns_that_fit_no_layer_are_not_applicable() -> None:
    with pytest.raises(NotApplicable, match="no layer is preconditioned: '0': left out by layers"):
        Preconditioning(layers=("blocks.*",)).bnp(nn.Sequential(nn.Linear(3, 2)), Training(6))


def test_layers_that_are_used_without_a_call_are_left_alone_from_the_start() -> None:
    """Attention of torch uses the weights of a layer that it never calls."""
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    bnp = Preconditioning().bnp(model, Training(6, input_shape=(5, 4)))
    assert list(bnp.layers) == ["linear1", "linear2"]
    assert "MultiheadAttention" in bnp.skipped["self_attn"]
    assert "without calling it" in bnp.skipped["self_attn.out_proj"]
    model(torch.randn(6, 5, 4)).square().sum().backward()
    bnp.precondition()


def test_no_layer_left_is_not_applicable() -> None:
    for options, model in [({"first_layer": False}, nn.Linear(3, 2)), ({}, nn.ReLU())]:
        with pytest.raises(NotApplicable, match="no layer is preconditioned"):
            Preconditioning(**options).bnp(model, Training(6))


# --- what an ablation leaves -----------------------------------------------------------------


def gradients_of(method: Any, network: Any, steps: int = 2) -> list[Tensor]:
    model = model_of(method, network).double()
    bnp = made("method", method).preconditioner(model, Training(6))
    found = []
    for step in range(steps):
        reads = made("network", network).reads(CIFAR)
        x = torch.rand(6, *reads, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        model.zero_grad()
        F.cross_entropy(model(x), torch.arange(6)).backward()
        if bnp is not None:
            bnp.precondition()
        found += [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return found


@pytest.mark.parametrize("network", [NETWORKS["fc"], "cnn"], ids=["fc", "cnn"])
def test_with_group_normalization_and_everything_off_it_is_group_normalization(network: Any) -> None:
    off = {"scale": False, "center": False, "standardize": False}
    ours, theirs = gradients_of({"kind": "bnp+gn", **off}, network), gradients_of("gn", network)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    changed = [gradients_of({"kind": "bnp+gn", **off, part: True}, network) for part in off]
    for one, other in pairwise([theirs, *changed]):
        assert not all(torch.allclose(a, b, atol=1e-12, rtol=0) for a, b in zip(one, other, strict=True))


# --- which form ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "lean"),
    [
        (Training(1, engine="compiled"), True),
        (Training(1), False),  # the calls from autograd into Python cost more than is saved here
        (Training(147, engine="compiled"), True),  # 8nN + 2mN + 9n + 2m against 4nN + 6nm + 2m + 8n: up to 147
        (Training(148, engine="compiled"), False),
        (Training(1, engine="compiled", devices=2), False),
        (Training(1, engine="compiled", precision="bf16"), False),
        (Training(1, engine="compiled", precision="tf32"), True),
        (Training(1, engine="compiled", penalized=True), False),
    ],
)
def test_the_lean_form_is_taken_where_it_is_possible_and_costs_less(training: Training, lean: bool) -> None:
    model = nn.Sequential(made("network", {"kind": "fc", "hidden": ()}).built(normalization("bnp"), (3072,), 100))
    for form, expected in (("auto", lean), ("plain", False)):
        bnp = Preconditioning(form=form).bnp(model, training)
        assert bool(bnp.lean) is expected
        bnp.remove()


def cell(form: str, **changes: Any) -> Settings:
    settings = {
        "dataset": {"kind": "synthetic", "shape": (40,), "train": 30, "test": 10, "classes": 5},
        "network": {"kind": "fc", "hidden": (30,)},
        "method": {"kind": "bnp", "form": form},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "batch_size": 4,
        "epochs": 1,
        "device": "cpu",
        "engine": "compiled",
        "threads": 1,
    }
    return Settings.model_validate(settings | changes)


def gradients(settings: Settings) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = models.build_model(settings, (40,), 5, generator)
    bnp, penalty = models.preconditioner(settings, model), models.penalty(settings, model)
    assert bnp is not None
    assert penalty is not None
    (model(torch.randn(4, 40, generator=generator)).square().mean() + penalty()).backward()
    bnp.precondition()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def form_of(settings: Settings) -> str | None:
    return costs(settings, (40,), 5).columns.bnp_form


@pytest.mark.regression
def test_both_forms_precondition_the_penalty() -> None:
    """An l2 penalty's gradient does not pass through a layer's product: the lean form left it as it was."""
    l2 = {"weight_decay": {"value": 0.5, "where": "l2"}}
    for auto, plain in zip(gradients(cell("auto", **l2)), gradients(cell("plain", **l2)), strict=True):
        torch.testing.assert_close(auto, plain)


@pytest.mark.regression
def test_the_form_of_a_cell_is_the_one_that_runs() -> None:
    """Under bf16 cells were said to run the lean form and ran the plain one: autocast makes a lean product torch's."""
    assert form_of(cell("auto")) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.5, "where": "optimizer"})) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.0, "where": "l2"})) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.5, "where": "l2"})) == "plain"
    assert form_of(cell("auto", precision="bf16")) == "plain"
