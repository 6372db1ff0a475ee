"""Networks of others under every method: their weights, their places, three steps of each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bnpbench.bnp import BNP
from bnpbench.errors import NotApplicable
from bnpbench.methods.base import MethodPlugin
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.networks.imported import admit
from bnpbench.registry import built_in
from bnpbench.suite import Cell, Settings
from bnpbench.training import models
from bnpbench.training.accounting import costs
from bnpbench.training.examples import Resident
from bnpbench.training.trainer import Trainer
from tests.support.others import NEEDS_TIMM
from tests.support.training import CPU

admit([__name__])  # whose functions make the networks below
PRECONDITIONERS = [kind for kind, cls in built_in().kinds(MethodPlugin).items() if issubclass(cls, GradientPlugin)]
METHODS: list[Any] = [*built_in().kinds(MethodPlugin), {"kind": "bn", "inference": "averaged"}]


def encoder(classes: int) -> nn.Module:
    """Two layers of torch's transformer over the rows of an image."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(96, 4, 64, dropout=0.0, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(96, classes)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.encoder(x.movedim(2, 1).flatten(2)).mean(1))
            return logits

    return Encoder()


def trees(classes: int) -> nn.Module:
    """A block of torchvision's Swin, its windows shifted."""
    from torchvision.models.swin_transformer import SwinTransformerBlock
    from torchvision.ops import Permute

    return nn.Sequential(
        nn.Conv2d(3, 24, 2, 2),
        Permute([0, 2, 3, 1]),
        nn.LayerNorm(24),
        SwinTransformerBlock(24, 2, [2, 2], [1, 1]),
        Permute([0, 3, 1, 2]),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, classes),
    )


def vision(classes: int) -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 1, 2, 32, 64, num_classes=classes)


def mobile(classes: int) -> nn.Module:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    block = InvertedResidualConfig(16, 3, 32, 24, True, "HS", 2, 1, 1.0)
    return MobileNetV3([block], 64, num_classes=classes)


def efficient(classes: int) -> nn.Module:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    return EfficientNet([MBConvConfig(4, 3, 2, 16, 24, 1)], 0.2, num_classes=classes)


def convnext(classes: int) -> nn.Module:
    from timm.layers import LayerNorm2d
    from timm.models.convnext import ConvNeXtBlock

    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 4),
        LayerNorm2d(8),
        ConvNeXtBlock(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def mixer(classes: int) -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    model: nn.Module = MlpMixer(classes, img_size=32, patch_size=8, num_blocks=1, embed_dim=32)
    return model


PRETRAINED: dict[str, Path] = {}


def pretrained(classes: int) -> nn.Module:
    """A network that reads its state from a file."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.LayerNorm(16),
        nn.Linear(16, classes),
    )
    model.load_state_dict(torch.load(PRETRAINED["state"], weights_only=True))
    return model


BLOCKS: dict[str, Any] = {
    name: {"kind": "import", "target": f"{__name__}:{name}"}
    for name in ("encoder", "trees", "vision", "mobile", "efficient")
}
TIMMS: dict[str, Any] = {
    "convnext": {"kind": "import", "target": f"{__name__}:convnext"},
    "mixer": {"kind": "import", "target": f"{__name__}:mixer"},
}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module by its name, as a factory's module is found."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, _this()))
    torch.set_num_threads(1)


def _this() -> Any:
    import types

    module = types.ModuleType(__name__)
    vars(module).update(globals())
    return module


def cell(network: Any, method: Any, **others: Any) -> Cell:
    common = {
        "dataset": {"kind": "synthetic", "shape": (3, 32, 32), "train": 6, "test": 4, "classes": 5},
        "optimizer": {"kind": "sgd", "lr": 0.01},
        "batch_size": 2,
        "epochs": 1,
        "device": "cpu",
        "engine": "eager",
        "threads": 1,
        "initialization": "keep",
    }
    return Cell(Settings.model_validate({**common, "network": network, "method": method, **others}))


def trainer(network: Any, method: Any, **others: Any) -> Trainer:
    one = cell(network, method, **others)
    return Trainer(one, Resident(one.settings, Path(), CPU), CPU)


@pytest.mark.parametrize(
    "network",
    [*BLOCKS.values(), *(pytest.param(network, marks=NEEDS_TIMM) for network in TIMMS.values())],
    ids=[*BLOCKS, *TIMMS],
)
def test_it_trains_three_steps_under_every_method_or_says_why_not(network: Any) -> None:
    for method in METHODS:
        settings = cell(network, method).settings
        found = costs(settings, (3, 32, 32), 5)
        assert found.uncounted is None
        if found.not_applicable is not None:
            assert found.not_applicable, method
            continue
        one = trainer(network, method)
        row = one.epoch()
        assert row["steps"] == 3
        assert torch.tensor(row["train_loss"]).isfinite(), (method, row)


# --- weights ---------------------------------------------------------------------------------


def saved(folder: Path) -> dict[str, Tensor]:
    """A state of random numbers, saved for ``pretrained``."""
    PRETRAINED["state"] = folder / "state.pt"
    state = {
        "0.weight": torch.randn(8, 3, 3, 3),
        "1.weight": torch.rand(8) + 0.5,
        "1.bias": torch.randn(8),
        "1.running_mean": torch.randn(8),
        "1.running_var": torch.rand(8) + 0.5,
        "1.num_batches_tracked": torch.tensor(7),
        "5.weight": torch.randn(16, 32),
        "5.bias": torch.randn(16),
        "6.weight": torch.rand(16) + 0.5,
        "6.bias": torch.randn(16),
        "7.weight": torch.randn(5, 16),
        "7.bias": torch.randn(5),
    }
    torch.save(state, PRETRAINED["state"])
    return state


def test_a_pretrained_state_is_what_every_method_starts_from(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state = saved(tmp_path)
    network = {"kind": "import", "target": f"{__name__}:pretrained"}
    for method in METHODS:
        try:
            model = trainer(network, method).model
        except NotApplicable:
            continue
        layers = dict(enumerate(model))
        for place in (0, 5, 7):
            for name, parameter in layers[place].named_parameters():
                original = name.removeprefix("parametrizations.").removesuffix(".original")
                there = state.get(f"{place}.{original}", torch.ones_like(parameter))  # scaled-ws has a gain, too
                assert torch.equal(parameter, there), method
        for place in (1, 6):
            for name, parameter in layers[place].named_parameters():
                there = state.get(f"{place}.{name.rpartition('.')[2]}")  # a method may have more, as dyt's alpha
                assert there is None or torch.equal(parameter, there), method


def test_the_network_as_it_is_made_has_the_loss_that_it_has_elsewhere(tmp_path: Path) -> None:
    torch.manual_seed(4)
    saved(tmp_path)
    one = trainer({"kind": "import", "target": f"{__name__}:pretrained"}, "native")
    index = torch.tensor([2, 5])
    images, labels = one.step.gather(index)
    elsewhere = F.cross_entropy(pretrained(5).train()(images), labels)
    one.step.begin_epoch(one.noise)
    one.step(index)
    assert one.step.loss_sum.item() == elsewhere.item()


def test_weights_are_drawn_by_the_seed_and_the_same_for_all_methods() -> None:
    def convolutions(method: Any, seed: int) -> Tensor:
        model = trainer(BLOCKS["mobile"], method, seed=seed).model
        return torch.cat([p.flatten() for m in model.modules() if isinstance(m, nn.Conv2d) for p in m.parameters()])

    torch.manual_seed(9)
    first = convolutions("native", 1)
    torch.manual_seed(10)
    assert all(torch.equal(first, convolutions(method, 1)) for method in ("native", "vanilla", "bn", "bnp"))
    assert not torch.equal(first, convolutions("native", 2))


def test_another_initialization_draws_all_of_it_anew(tmp_path: Path) -> None:
    """Of pretrained values nothing is left, whatever the module."""
    torch.manual_seed(5)
    saved(tmp_path)
    network = {"kind": "import", "target": f"{__name__}:pretrained"}
    for method in ("native", "vanilla", "bnp+native", "gn"):
        model = trainer(network, method, initialization="he-normal").model
        kept = pretrained(5).state_dict()
        for name, tensor in model.state_dict().items():
            assert name not in kept or not torch.equal(tensor, kept[name]), (method, name)
    model = trainer(network, "native", initialization="he-normal").model
    assert torch.equal(model[1].weight, torch.ones(8))
    assert torch.equal(model[1].running_mean, torch.zeros(8))
    assert torch.equal(model[7].bias, torch.zeros(5))
    vision_ = trainer(BLOCKS["vision"], "native", initialization="he-normal").model
    assert vision_.class_token.std() > 0


@pytest.mark.regression
def test_then_every_method_starts_from_its_layers_as_they_were_made(tmp_path: Path) -> None:
    """A weight of 0, as authors begin some blocks with, stays with no method."""
    saved(tmp_path)
    state = torch.load(PRETRAINED["state"], weights_only=True)
    for place in (1, 6):
        state[f"{place}.weight"].zero_()
    torch.save(state, PRETRAINED["state"])
    network = {"kind": "import", "target": f"{__name__}:pretrained"}
    starts = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1, "num_batches_tracked": 0, "alpha": 0.5}
    found = set[str]()
    for method in METHODS:
        try:
            model = trainer(network, method, initialization="he-normal").model
        except NotApplicable:
            continue
        found.add(str(method))
        for name, tensor in model.state_dict().items():
            if name.startswith(("1.", "6.")):
                assert torch.equal(tensor, torch.full_like(tensor, starts[name.rpartition(".")[2]])), (method, name)
    assert {"dyt", "4things", "ghost-bn", "renorm", "rmsnorm", "bn", "native"} <= found


@pytest.mark.regression
def test_a_layer_counts_its_own_batches(tmp_path: Path) -> None:
    """Renormalization's limits and the average of inference begin anew, whatever the author's layer has seen."""
    state = saved(tmp_path)
    network = {"kind": "import", "target": f"{__name__}:pretrained"}
    for method in ("renorm", {"kind": "bn", "inference": "averaged"}):
        layer = trainer(network, method).model[1]
        assert layer.num_batches_tracked == 0
        assert torch.equal(layer.running_mean, state["1.running_mean"])
    assert trainer(network, "native").model[1].num_batches_tracked == 7


def double(method: Any) -> tuple[nn.Module, Tensor, Any]:
    """The pretrained network in float64 under a method, its logits of two images, and what changes its gradients."""
    settings = cell({"kind": "import", "target": f"{__name__}:pretrained"}, method).settings
    model = models.build_model(settings, (3, 32, 32), 5, torch.Generator().manual_seed(1)).double().train()
    preconditioner: Any = models.preconditioner(settings, model, (3, 32, 32))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    output = model(images)
    if getattr(settings.method, "looks_back", False):
        preconditioner.look_back(output)
    F.cross_entropy(output, torch.tensor([0, 3])).backward()
    return model, output, preconditioner


@pytest.mark.regression
@pytest.mark.parametrize("kind", PRECONDITIONERS)
def test_a_preconditioner_keeps_the_network_as_it_is_made_where_it_is_told_to(kind: str, tmp_path: Path) -> None:
    """Before there was no way but without the author's normalizations: only BNP had one."""
    saved(tmp_path)
    method = {"kind": kind, "sites": "keep"}
    (native, expected, none), (model, output, preconditioner) = double("native"), double(method)
    assert none is None
    assert [type(layer) for layer in model] == [type(layer) for layer in native]
    assert torch.equal(output, expected)
    assert all(torch.equal(tensor, native.state_dict()[name]) for name, tensor in model.state_dict().items())
    plain = {name: parameter.grad for name, parameter in native.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name], rtol=1e-12, atol=1e-14)
    preconditioner.precondition()
    changed = {
        name.partition(".")[0]
        for name, parameter in model.named_parameters()
        if not torch.allclose(parameter.grad, plain[name], rtol=1e-6, atol=0)
    }
    assert changed == {"0", "5", "7"}  # the layers; not the normalizations, 1 and 6
    one = cell({"kind": "import", "target": f"{__name__}:pretrained"}, method)
    columns = costs(one.settings, (3, 32, 32), 5).columns
    assert (columns.sites_served, columns.bnp_layers) == (2, 3)
    assert one.label == f"{kind}(sites=keep)"


@pytest.mark.parametrize("kind", PRECONDITIONERS)
def test_else_a_preconditioner_has_a_network_without_normalization_under_the_key_that_it_had(kind: str) -> None:
    one = cell({"kind": "import", "target": f"{__name__}:pretrained"}, {"kind": kind, "sites": "none"})
    assert (one.settings.method.native, one.label) == (False, kind)
    assert f'"method":{{"kind":"{kind}"}}' in one.canonical


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["native", "bnp+native", {"kind": "foof", "sites": "keep"}])
def test_a_network_that_is_built_with_its_method_has_no_form_of_its_own(method: Any) -> None:
    kind = method if isinstance(method, str) else method["kind"]
    settings = cell({"kind": "fc", "hidden": (4,)}, method).settings
    with pytest.raises(NotApplicable, match=re.escape(f"none of its own: '{kind}'")):
        models.build_model(settings, (3072,), 5, torch.Generator())


def test_what_a_method_cannot_serve_is_told_with_the_sites() -> None:
    found = costs(cell(BLOCKS["mobile"], {"kind": "gn", "channels_per_group": 32}).settings, (3, 32, 32), 5)
    assert found.not_applicable is not None
    assert found.not_applicable.startswith("2 of 5 sites: group normalization behind layer 'features.0.1'")
    assert found.columns.sites_served == 2
    assert found.columns.sites is not None
    assert found.columns.sites.splitlines()[0] == "features.0.1: BatchNorm2d of 16"


def test_one_value_a_group_is_not_applicable() -> None:
    found = costs(cell(BLOCKS["encoder"], {"kind": "gn", "channels_per_group": 1}).settings, (3, 32, 32), 5)
    assert found.not_applicable is not None
    assert "single value" in found.not_applicable


def test_costs_say_what_bnp_conditions_and_what_it_leaves_alone() -> None:
    columns = costs(cell(BLOCKS["trees"], "bnp").settings, (3, 32, 32), 5).columns
    assert columns.bnp_skipped is not None
    left = dict(line.split(": ", 1) for line in columns.bnp_skipped.splitlines())
    assert left["3.attn.qkv"] == "its weight is used without calling it"
    assert columns.bnp_layers == 4
    chosen = costs(cell(BLOCKS["trees"], {"kind": "bnp", "layers": ("?", "3.*", "!*.mlp.*")}).settings, (3, 32, 32), 5)
    assert chosen.columns.bnp_layers == 2


# --- layers that are checkpointed, shared, or called twice ------------------------------------


class Mlp(nn.Module):
    """Dense layers, some called several times, and recomputed in the backward pass if so asked."""

    def __init__(self, classes: int, how: str | None, times: int) -> None:
        super().__init__()
        self.times = times
        self.first, self.inner = nn.Linear(3072, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head, self.how = nn.Linear(8, classes), how

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1)).relu()
        for _ in range(self.times):
            x = self.inner(x) if self.how is None else checkpoint(self.inner, x, use_reentrant=self.how == "reentrant")
        logits: Tensor = self.head(x)
        return logits


def mlp(classes: int, how: str | None = None, times: int = 1) -> nn.Module:
    return Mlp(classes, how, times)


def trained(how: str | None, method: Any, engine: str = "eager", times: int = 1) -> tuple[Tensor, Tensor]:
    """Weights and BNP's running values after three steps of an MLP."""
    network = {"kind": "import", "target": f"{__name__}:mlp", "options": {"how": how, "times": times}}
    one = trainer(network, method, engine=engine)
    one.prepare()
    one.epoch()
    assert isinstance(one.bnp, BNP)
    state = torch.cat([value.flatten() for value in one.bnp.state_dict().values()])
    return torch.cat([p.detach().flatten() for p in one.model.parameters()]), state


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")  # of evaluation, reentrant
@pytest.mark.parametrize("statistics", ["running", "batch"])
@pytest.mark.parametrize("how", ["plain", "reentrant"])
def test_checkpointed_layers_train_to_the_last_bit_as_without(how: str, statistics: str) -> None:
    method = {"kind": "bnp", "statistics": statistics}
    for one, other in zip(trained(how, method), trained(None, method), strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("how", ["plain", "reentrant"])
@pytest.mark.parametrize("times", [2, 3])
def test_so_do_layers_that_are_shared_and_checkpointed(how: str, times: int) -> None:
    """Calls are pooled in the order in which their gradients come, whether they are recomputed or not."""
    for one, other in zip(trained(how, "bnp", times=times), trained(None, "bnp", times=times), strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize(("how", "times"), [("plain", 1), ("reentrant", 2)])
def test_a_compiled_step_with_checkpointed_layers_agrees(how: str, times: int) -> None:
    for one, other in zip(trained(how, "bnp", "compiled", times), trained(None, "bnp", times=times), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
