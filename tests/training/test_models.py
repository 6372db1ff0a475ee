"""Networks with their methods: what stands where, equal starts, what is not applicable, and one step of everything."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp.lean import Linear
from bnpbench.errors import NotApplicable
from bnpbench.layers import AveragedBatchNorm, BatchRenorm, FourThings
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

FC_LAYER = {
    "bn": nn.BatchNorm1d,
    "bn-pre": nn.BatchNorm1d,
    "renorm": BatchRenorm,
    "ln": nn.LayerNorm,
    "gn": nn.GroupNorm,
    "4things": FourThings,
    "bnp+gn": nn.GroupNorm,
}


@pytest.mark.parametrize(("method", "layer"), FC_LAYER.items())
def test_a_dense_network_has_the_methods_layer_at_every_hidden_layer(method: str, layer: type[nn.Module]) -> None:
    model = model_of(method, NETWORKS["fc"])
    order = ["norm", "relu"] if method == "bn-pre" else ["relu", "norm"]
    hidden = [f"hidden{n}{suffix}" for n in (1, 2) for suffix in ("", f"_{order[0]}", f"_{order[1]}")]
    assert [name for name, _ in model.named_children()] == [*hidden, "output"]
    assert type(model.hidden1_norm) is layer
    assert type(model.hidden2_norm) is layer


@pytest.mark.parametrize("method", ["vanilla", "bnp"])
def test_a_method_without_normalization_adds_no_layer(method: str) -> None:
    assert {type(module) for module in model_of(method, NETWORKS["fc"]).children()} == {Linear, nn.ReLU}


def test_in_the_cnn_the_normalization_stands_behind_the_pooling_or_before_the_activation() -> None:
    post = " ".join(name for name, _ in model_of("bn", "cnn").named_children())
    pre = " ".join(name for name, _ in model_of("bn-pre", "cnn").named_children())
    assert post == (
        "conv1 conv1_relu conv1_pool conv1_norm conv2 conv2_relu conv2_pool conv2_norm "
        "conv3 conv3_relu conv3_norm flatten dense dense_relu dense_norm output"
    )
    assert pre == (
        "conv1 conv1_norm conv1_relu conv1_pool conv2 conv2_norm conv2_relu conv2_pool "
        "conv3 conv3_norm conv3_relu flatten dense dense_norm dense_relu output"
    )


def test_batch_normalization_is_torchs_own_with_the_options_values() -> None:
    model = model_of({"kind": "bn", "eps": 1e-4, "momentum": 0.2}, "cnn")
    assert type(model.conv1_norm) is nn.BatchNorm2d
    assert type(model.dense_norm) is nn.BatchNorm1d
    assert (model.conv1_norm.eps, model.conv1_norm.momentum) == (1e-4, 0.2)
    averaged = model_of({"kind": "bn", "inference": "averaged"}, "cnn")
    assert type(averaged.dense_norm) is AveragedBatchNorm


def test_layer_normalization_of_a_map_is_over_all_of_an_example() -> None:
    norm = model_of("ln", "cnn").double().conv1_norm
    x = torch.randn(2, 32, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 1
    mean, variance = x.mean((1, 2, 3), keepdim=True), x.var((1, 2, 3), correction=0, keepdim=True)
    torch.testing.assert_close(norm(x), (x - mean) / (variance + 1e-3).sqrt())


@pytest.mark.parametrize(
    ("options", "groups"), [({}, [8, 16]), ({"channels_per_group": 16}, [2, 4]), ({"groups": 2}, [2, 2])]
)
def test_groups_by_channels_or_by_number(options: dict[str, int], groups: list[int]) -> None:
    model = model_of({"kind": "gn", **options}, "cnn")
    assert [model.conv1_norm.num_groups, model.conv2_norm.num_groups] == groups


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


@pytest.mark.parametrize("network", ["resnet", "preactivation", "resnet18"])
@pytest.mark.parametrize("method", ["vanilla", "bn", "gn", "bnp", "bnp+gn"])
def test_convolutions_of_residual_networks_have_a_bias_where_the_method_needs_one(method: str, network: str) -> None:
    modules = model_of(method, NETWORKS[network]).modules()
    biased = {module.bias is not None for module in modules if isinstance(module, nn.Conv2d)}
    assert biased == {method in ("vanilla", "bnp", "bnp+gn")}


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


@pytest.mark.parametrize("batch_size", [1, 2, 128])
def test_fewer_channels_than_a_group_of_four_things_are_one_group(batch_size: int) -> None:
    model = model_of({"kind": "4things", "group": 4, "input": True}, "cnn")
    assert model.input_norm.group == 3
    assert model.conv1_norm.group == 4
    assert models.not_applicable(model, IMAGE, batch_size) is None
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


def test_four_things_pull_beta_to_zero_and_gamma_to_one() -> None:
    cell = settings({"kind": "4things", "decay": 0.3}, NETWORKS["fc"])
    model = model_of(cell.method.model_dump(), NETWORKS["fc"]).double()
    term = models.penalty(cell, model)
    assert term is not None
    term().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
        parameter.grad = None
    value = term()
    value.backward()
    layers = [model.hidden1_norm, model.hidden2_norm]
    assert value.item() == pytest.approx(
        0.15 * sum((layer.bias**2).sum().item() + ((layer.weight - 1) ** 2).sum().item() for layer in layers)
    )
    for layer in layers:
        torch.testing.assert_close(layer.bias.grad, 0.3 * layer.bias)
        torch.testing.assert_close(layer.weight.grad, 0.3 * (layer.weight - 1))
    assert model.hidden1.weight.grad is None


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


def gradients(cell: Settings, steps: int = 2) -> list[Tensor]:
    model = models.build_model(cell, IMAGE, 10, torch.Generator().manual_seed(1)).double()
    bnp = models.preconditioner(cell, model)
    found = []
    for step in range(steps):
        x = torch.rand(
            6, *reads(cell.network.model_dump()), dtype=torch.float64, generator=torch.Generator().manual_seed(step)
        )
        model.zero_grad()
        F.cross_entropy(model(x), torch.arange(6)).backward()
        if bnp is not None:
            bnp.precondition()
        found += [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return found


@pytest.mark.parametrize("network", [NETWORKS["fc"], "cnn"], ids=["fc", "cnn"])
def test_bnp_with_group_normalization_and_everything_off_is_group_normalization(network: Any) -> None:
    off = {"scale": False, "center": False, "standardize": False}
    ours, theirs = gradients(settings({"kind": "bnp+gn", **off}, network)), gradients(settings("gn", network))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    changed = [gradients(settings({"kind": "bnp+gn", **off, part: True}, network)) for part in off]
    for one, other in pairwise([theirs, *changed]):
        assert not all(torch.allclose(a, b, atol=1e-12, rtol=0) for a, b in zip(one, other, strict=True))


@EVERY_NETWORK
def test_bnp_preconditions_every_layer_and_leaves_the_first_out_on_request(network: Any) -> None:
    model = model_of("bnp", network)
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for first, expected in [(True, names), (False, names[1:])]:
        bnp = models.preconditioner(settings({"kind": "bnp", "first_layer": first}, network), model)
        assert bnp is not None
        assert list(bnp.layers) == expected
        bnp.remove()


@EVERY_NETWORK
def test_the_layer_left_out_is_the_one_that_reads_the_input(network: Any) -> None:
    model = model_of("vanilla", network)
    called: list[nn.Module] = []
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for module in layers:
        module.register_forward_hook(lambda module, inputs, output: called.append(module))
    model(torch.rand(2, *reads(network)))
    assert called[0] is layers[0]


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


@pytest.mark.parametrize("network", [NETWORKS["fc"], "cnn"], ids=["fc", "cnn"])
@pytest.mark.parametrize("clipped", [True, False])
def test_renorm_runs_at_batch_size_one(network: Any, clipped: bool) -> None:
    step = step_of({"kind": "renorm", "clipped": clipped}, network, IMAGE, "cpu", 1)
    for example in range(3):
        step(torch.tensor([example]))
    assert step.loss_sum.isfinite()
