"""Networks with their methods: what stands where, equal starts, what is not applicable, and one step of everything."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.errors import NotApplicable
from bnpbench.suite.settings import Settings
from bnpbench.training import models
from bnpbench.training.step import Step

METHODS: list[Any] = [
    "vanilla",
    "bn",
    "bn-pre",
    {"kind": "bn", "inference": "averaged"},
    "renorm",
    {"kind": "renorm", "clipped": False},
    "ln",
    "gn",
    {"kind": "gn", "channels_per_group": 2, "position": "pre"},
    "4things",
    {"kind": "4things", "group": 4, "ghost_batch": 2},
    "bnp",
    {"kind": "bnp", "statistics": "batch", "scale": False, "first_layer": False},
    "bnp+gn",
]
NETWORKS: dict[str, Any] = {
    "fc": {"kind": "fc", "hidden": (16, 12)},
    "cnn": {"kind": "cnn"},
    "resnet": {"kind": "resnet", "depth": 8},
    "preactivation": {"kind": "resnet", "depth": 8, "preactivation": True},
    "resnet18": {"kind": "resnet18"},
}
IMAGE = (3, 32, 32)
EVERY_METHOD = pytest.mark.parametrize("method", METHODS, ids=str)
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def settings(method: Any = "bn", network: Any = "cnn", **others: Any) -> Settings:
    common = {"dataset": "cifar10", "optimizer": {"kind": "sgd", "lr": 0.1}, "batch_size": 6, "epochs": 1}
    return Settings.model_validate({**common, "network": network, "method": method, **others})


def model_of(method: Any, network: Any, shape: tuple[int, ...] = IMAGE, classes: int = 10, seed: int = 1) -> nn.Module:
    return models.build_model(settings(method, network), shape, classes, torch.Generator().manual_seed(seed))


def reads(network: Any, shape: tuple[int, ...] = IMAGE) -> tuple[int, ...]:
    return settings(network=network).network.reads(shape)


# --- what stands where -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "network", "words"),
    [
        ({"kind": "gn", "channels_per_group": 5}, NETWORKS["resnet"], ["'conv1'", "5 channels", "16 channels"]),
        ({"kind": "gn", "groups": 32}, NETWORKS["resnet"], ["'conv1'", "32 groups", "16 channels"]),
        ({"kind": "gn", "channels_per_group": 32}, NETWORKS["resnet"], ["'conv1'", "32 channels", "16 channels"]),
        ({"kind": "gn", "channels_per_group": 24}, NETWORKS["resnet18"], ["24 channels", "64 channels"]),
        ({"kind": "bnp+gn", "groups": 5}, NETWORKS["fc"], ["'hidden1'", "5 groups", "16 channels"]),
        ({"kind": "4things", "group": 5}, NETWORKS["preactivation"], ["'conv1'", "5 channels", "16 channels"]),
    ],
)
def test_groups_that_do_not_fit_are_told_with_both_numbers(method: Any, network: Any, words: list[str]) -> None:
    with pytest.raises(NotApplicable) as error:
        model_of(method, network)
    for word in words:
        assert word in str(error.value)


# --- equal starts ----------------------------------------------------------------------------


def weights(model: nn.Module) -> list[Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]


@EVERY_NETWORK
def test_one_seed_gives_every_method_the_same_weights(network: Any) -> None:
    state = torch.get_rng_state()
    first = weights(model_of("vanilla", network))
    for method in METHODS[1:] if network != NETWORKS["resnet18"] else ["bn", "gn", "bnp+gn"]:
        model = model_of(method, network)
        for ours, theirs in zip(weights(model), first, strict=True):
            assert torch.equal(ours, theirs)
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                assert not module.bias.any()
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(weights(model_of("vanilla", network, seed=2))[0], first[0])


# --- what is not applicable ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["bn", "bn-pre", {"kind": "bn", "inference": "averaged"}, "4things"], ids=str)
def test_batch_statistics_over_a_single_row_are_not_applicable_and_the_reason_names_the_layer(method: Any) -> None:
    for network, layer in [(NETWORKS["fc"], "hidden1_norm"), ("cnn", "dense_norm"), ("resnet18", "layer4.0.bn1")]:
        model = model_of(method, network)
        reason = models.not_applicable(model, reads(network), 1)
        assert reason is not None
        assert repr(layer) in reason
        assert "single row" in reason
        assert "batch size 1" in reason
        assert models.not_applicable(model, reads(network), 2) is None


@pytest.mark.parametrize("network", [NETWORKS["resnet"], NETWORKS["preactivation"]], ids=["resnet", "preactivation"])
def test_batch_normalization_runs_at_batch_size_one_where_every_layer_sees_several_positions(network: Any) -> None:
    model = model_of("bn", network)
    assert models.not_applicable(model, IMAGE, 1) is None
    assert model(torch.rand(1, *IMAGE)).isfinite().all()


@pytest.mark.parametrize(
    ("method", "batch_size", "applicable"),
    [
        ({"kind": "4things", "group": 4}, 1, True),
        ({"kind": "4things", "ghost_batch": 1}, 8, False),
        ({"kind": "4things", "ghost_batch": 2}, 3, False),  # two examples and one
        ({"kind": "4things", "ghost_batch": 2}, 4, True),
        ("renorm", 1, True),
        ("ln", 1, True),
        ("gn", 1, True),
        ("vanilla", 1, True),
    ],
)
def test_what_else_is_applicable(method: Any, batch_size: int, applicable: bool) -> None:
    model = model_of(method, "cnn")
    assert (models.not_applicable(model, IMAGE, batch_size) is None) is applicable
    if applicable:
        assert model(torch.rand(batch_size, *IMAGE)).isfinite().all()


@EVERY_METHOD
def test_asking_leaves_the_model_as_it_was(method: Any) -> None:
    model = model_of(method, "cnn").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for batch_size in (1, 4):
        models.not_applicable(model, IMAGE, batch_size)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training or module._forward_pre_hooks for module in model.modules())


# --- terms of the loss -----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vanilla", "bn", "bnp", {"kind": "4things", "decay": 0.0}], ids=str)
def test_no_penalty_where_nothing_asks_for_one(method: Any) -> None:
    cell = settings(method, NETWORKS["fc"], weight_decay={"value": 0.1, "where": "optimizer"})
    assert models.penalty(cell, model_of(method, NETWORKS["fc"])) is None


def test_l2_in_the_loss_equals_weight_decay_in_plain_sgd() -> None:
    cell = settings("bn", NETWORKS["fc"], weight_decay={"value": 0.2, "where": "l2"})
    x, y = torch.rand(8, prod(IMAGE), dtype=torch.float64), torch.arange(8)
    ends = []
    for decay in (0.0, 0.2):
        model = model_of("bn", NETWORKS["fc"]).double()
        loss = F.cross_entropy(model(x), y)
        term = models.penalty(cell, model)
        assert term is not None
        (loss if decay else loss + term()).backward()
        torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=decay).step()
        ends.append(list(model.parameters()))
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs)


# --- preconditioning -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vanilla", "bn", "gn", "ln", "renorm", "4things"])
def test_other_methods_do_not_precondition(method: str) -> None:
    assert models.preconditioner(settings(method), model_of(method, "cnn")) is None


# --- one step of everything ------------------------------------------------------------------


def step_of(method: Any, network: Any, shape: tuple[int, ...], device: str, batch_size: int) -> Step:
    cell = settings(method, network, weight_decay={"value": 1e-4, "where": "l2"})
    with torch.device(device):
        model = models.build_model(cell, shape, 10, torch.Generator().manual_seed(1))
        images = torch.rand(8, *cell.network.reads(shape))
    return Step(
        model,
        torch.arange(8, device=device),
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True),
        images=images,
        bnp=models.preconditioner(cell, model),
        penalty=models.penalty(cell, model),
    )


@EVERY_METHOD
@EVERY_NETWORK
def test_one_step_on_the_meta_device_leaves_no_tensor_on_the_host(network: Any, method: Any) -> None:
    step = step_of(method, network, IMAGE, "meta", 6)
    step(torch.empty(6, dtype=torch.int64, device="meta"))
    assert {parameter.grad.device.type for parameter in step.parameters if parameter.grad is not None} == {"meta"}


LEGAL = [
    ("fc", (64,)),
    ("fc", (1, 8, 8)),
    ("cnn", (1, 28, 28)),
    ("cnn", IMAGE),
    ("resnet", (1, 28, 28)),
    ("preactivation", IMAGE),
]


@pytest.mark.parametrize(
    ("network", "shape", "method"),
    [*((*legal, method) for legal in LEGAL for method in METHODS)]
    + [("resnet18", IMAGE, method) for method in ("bn", "gn", "bnp+gn")],
)
def test_one_step_trains_every_parameter(network: str, shape: tuple[int, ...], method: Any) -> None:
    step = step_of(method, NETWORKS[network], shape, "cpu", 6)
    before = [parameter.detach().clone() for parameter in step.parameters]
    step(torch.arange(6))
    assert step.loss_sum.isfinite()
    for parameter, old in zip(step.parameters, before, strict=True):
        assert parameter.isfinite().all()
        assert not torch.equal(parameter, old)


@pytest.mark.regression
def test_a_network_with_other_outputs_than_classes_is_told() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 15))
    assert models.not_applicable(model, (12,), 2, classes=15) is None
    reason = models.not_applicable(model, (12,), 2, classes=10)
    assert reason == "of 2 x 10 logits, one for each class, the network gives 2 x 15"

    class Several(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    assert "the network gives a tuple" in str(models.not_applicable(Several(), (12,), 2, classes=12))
