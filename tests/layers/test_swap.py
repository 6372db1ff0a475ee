"""Normalizations of networks of others: which are found, and what stands there after a swap."""

from __future__ import annotations

import hashlib
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations
from torchvision import models
from torchvision.ops import Conv2dNormActivation

from bnpbench.errors import NotApplicable
from bnpbench.layers.rows import Rows
from bnpbench.layers.swap import places, swapped
from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.networks import normalization
from tests.support.others import NEEDS_TIMM, itself, outputs, scattered, swapped_for_itself

SNAPSHOTS = Path(__file__).parent / "snapshots"
WITHOUT_AUXILIARY = {"aux_logits": False, "init_weights": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": WITHOUT_AUXILIARY,
    "inception_v3": WITHOUT_AUXILIARY,
    "vit_b_32": {"image_size": 32},
}
SMALLEST = {  # of each family of torchvision's with normalizations, and its smallest image
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "googlenet": 32,
    "inception_v3": 75,
    "maxvit_t": 224,
    "mnasnet0_5": 32,
    "mobilenet_v2": 32,
    "mobilenet_v3_small": 32,
    "regnet_x_400mf": 32,
    "regnet_y_400mf": 32,
    "resnet18": 32,
    "resnext50_32x4d": 32,
    "shufflenet_v2_x0_5": 32,
    "swin_t": 32,
    "swin_v2_t": 32,
    "vgg11_bn": 32,
    "vit_b_32": 32,
    "wide_resnet50_2": 32,
}
TIMM: dict[str, dict[str, Any]] = {  # with options that make it small, for images of 32 pixels
    "convnext_atto": {},
    "convnextv2_atto": {},
    "deit3_small_patch16_224": {"img_size": 32},
    "efficientnet_b0": {},
    "ghostnet_050": {},
    "levit_128": {"img_size": 64},
    "mixer_s32_224": {"img_size": 32},
    "mobilenetv4_conv_small": {},
    "poolformer_s12": {},
    "repvit_m0_9": {},
    "resnetv2_50x1_bit": {},
    "vit_tiny_patch16_224": {"img_size": 32},
}
LISTED = [
    "cait_xxs24_224",
    "coat_lite_tiny",
    "convit_tiny",
    "convmixer_768_32",
    "convnext_atto",
    "convnextv2_atto",
    "crossvit_9_240",
    "dla34",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientnet_b0",
    "efficientvit_b0",
    "efficientvit_m0",
    "gmixer_12_224",
    "hgnet_base",
    "hrnet_w18_small",
    "inception_next_atto",
    "legacy_xception",
    "levit_128",
    "mixer_s32_224",
    "mobilenetv4_conv_small",
    "poolformer_s12",
    "pvt_v2_b0",
    "repvit_m0_9",
    "res2net50_14w_8s",
    "resnetv2_50x1_bit",
    "selecsls42",
    "tiny_vit_5m_224",
    "visformer_small",
    "vit_tiny_patch16_224",
]


def torchvisions(name: str) -> nn.Module:
    model: nn.Module = models.get_model(name, weights=None, num_classes=10, **OPTIONS.get(name, {}))
    return model


# --- what is found -----------------------------------------------------------------------------


def told(name: str, model: nn.Module) -> str:
    """A line: how many of which class, how many that cannot be replaced, and a sum of all their names and sizes."""
    found = places(model)
    kinds = Counter(type(place.module).__name__ for place in found)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    digest = hashlib.sha256("\n".join(map(str, found)).encode()).hexdigest()[:12]
    return f"{name}: {listed}; {sum(place.fault is not None for place in found)} stay; {digest}"


def compare(file: str, lines: list[str]) -> None:
    path = SNAPSHOTS / file
    assert lines == path.read_text().splitlines(), f"if that is right, write it to {path}"


def test_sites_of_every_classification_network_of_torchvision() -> None:
    lines = [torchvision.__version__.partition("+")[0].rpartition(".")[0]]
    for name in models.list_models(module=models):
        network = {"kind": "torchvision", "name": name, "options": OPTIONS.get(name, {})}
        with torch.device("meta"):
            lines.append(told(name, made("network", network).built(Normalization(native=True), (3, 32, 32), 10)))
    if lines[0] != (SNAPSHOTS / "torchvision.txt").read_text().splitlines()[0]:
        pytest.skip(f"another torchvision, {lines[0]}, may have other networks")
    compare("torchvision.txt", lines)


@NEEDS_TIMM
def test_sites_of_thirty_networks_of_timm() -> None:
    import timm

    if timm.__version__ != (SNAPSHOTS / "timm.txt").read_text().splitlines()[0]:
        pytest.skip(f"another timm, {timm.__version__}, may have other networks")
    with torch.device("meta"):
        lines = [told(name, timm.create_model(name, num_classes=10)) for name in LISTED]
    assert len(lines) == 30
    compare("timm.txt", [timm.__version__, *lines])


def test_they_are_told_by_name_class_and_size() -> None:
    assert [str(place) for place in places(models.resnet18())][:2] == [
        "bn1: BatchNorm2d of 64",
        "layer1.0.bn1: BatchNorm2d of 64",
    ]


# --- a kind for itself -------------------------------------------------------------------------


def same_after_a_swap(model: nn.Module, shape: tuple[int, ...], batch: int = 2) -> None:
    """Every bit of the outputs, in eval and train mode, after a swap for layers made anew."""
    scattered(model)
    x = torch.randn(batch, *shape)
    old = {place.module for place in places(model)}
    assert old
    before = outputs(deepcopy(model), x)
    after = swapped_for_itself(model, shape)
    assert not old & set(after.modules())
    for one, other in zip(before, outputs(after, x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", SMALLEST)
def test_a_kind_for_itself_changes_no_bit_in_torchvisions(name: str) -> None:
    torch.manual_seed(0)
    same_after_a_swap(torchvisions(name), (3, SMALLEST[name], SMALLEST[name]))


@NEEDS_TIMM
@pytest.mark.parametrize("name", TIMM)
def test_a_kind_for_itself_changes_no_bit_in_timms(name: str) -> None:
    import timm

    torch.manual_seed(0)
    side = TIMM[name].get("img_size", 32)
    same_after_a_swap(timm.create_model(name, num_classes=10, **TIMM[name]), (3, side, side))


class Activated(nn.BatchNorm2d):
    """A subclass with its activation, as timm has them."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.act = nn.LeakyReLU(0.1)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's
        output: Tensor = self.act(super().forward(input))
        return output


class Deep(nn.Module):
    """Nested names, a list, an activation in a subclass, one module in two places and called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv2dNormActivation(3, 6, norm_layer=Activated, activation_layer=None)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(6, 6, 1, bias=False), nn.GroupNorm(2, 6)) for _ in range(2))
        self.shared = nn.InstanceNorm2d(6, affine=True, track_running_stats=True)
        self.again = nn.Sequential(nn.Conv2d(6, 6, 1), self.shared)
        self.rows = nn.BatchNorm1d(6)
        self.last = nn.RMSNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = self.rows(self.again(self.shared(x)).flatten(2))
        last: Tensor = self.last(x.mean(2))
        return last


def test_a_kind_for_itself_changes_no_bit_in_what_people_write() -> None:
    torch.manual_seed(0)
    same_after_a_swap(Deep(), (3, 5, 5), batch=4)
    same_after_a_swap(nn.BatchNorm1d(7), (7, 3))
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    same_after_a_swap(encoder, (5, 8))
    decoder = nn.TransformerEncoderLayer(8, 2, 16, bias=False, norm_first=True)
    same_after_a_swap(decoder, (5, 8))


def test_a_traced_network_is_swapped_like_any_other() -> None:
    torch.manual_seed(0)
    same_after_a_swap(fx.symbolic_trace(models.resnet18(num_classes=3)), (3, 32, 32))


def test_the_proof_sees_what_is_lost() -> None:
    """A swap that carried no values over, or put the layer elsewhere, would not pass."""
    torch.manual_seed(0)
    model = scattered(Deep())
    x = torch.randn(4, 3, 5, 5)
    before = outputs(deepcopy(model), x)
    fresh = deepcopy(model)
    for place in places(fresh):
        place.module.reset_parameters() if hasattr(place.module, "reset_parameters") else None
    assert not torch.equal(before[0], outputs(fresh, x)[0])


# --- what is put there -------------------------------------------------------------------------


def sites_of(model: nn.Module, shape: tuple[int, ...]) -> list[tuple[int, int, str]]:
    asked = []

    def maker(features: int, dims: int, site: str) -> nn.Module:
        asked.append((features, dims, site))
        return nn.Identity()

    swapped(model, Normalization(None, maker), shape)
    return asked


def test_each_site_is_asked_for_once_by_its_first_name() -> None:
    assert sites_of(Deep(), (3, 5, 5)) == [
        (6, 2, "stem.1"),
        (6, 2, "blocks.0.1"),
        (6, 2, "blocks.1.1"),
        (6, 2, "shared"),
        (6, 1, "rows"),
        (6, 0, "last"),
    ]


def test_a_shared_layer_stays_shared() -> None:
    model = swapped(Deep(), normalization("bn"), (3, 5, 5))
    assert isinstance(model.shared, nn.BatchNorm2d)
    assert model.shared is model.again[1]


def test_without_a_normalization_activations_stay_and_biases_are_not_added() -> None:
    model = swapped(Deep(), Normalization(), (3, 5, 5))
    assert not places(model)
    assert isinstance(model.stem[1], nn.Sequential)
    assert [type(part) for part in model.stem[1]] == [nn.Identity, nn.LeakyReLU]
    assert all(block[0].bias is None for block in model.blocks)


def test_an_activation_in_place_spares_the_input_that_a_normalization_kept() -> None:
    class Before(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.act = nn.BatchNorm2d(2), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.act(self.norm(x))

    model = swapped(Before(), Normalization(), (2, 3, 3))
    x = torch.randn(2, 2, 3, 3)
    assert torch.equal(model(x.clone()), x + x.relu())


def test_rows_are_those_of_every_position() -> None:
    """Batch normalization of tokens and of channels-first rows takes its statistics over all of them."""
    torch.manual_seed(0)
    x = torch.randn(4, 5, 6)
    model = swapped(nn.Sequential(nn.LayerNorm(6)), normalization({"kind": "bn", "eps": 1e-5}), (5, 6))
    torch.testing.assert_close(model(x), F.batch_norm(x.reshape(-1, 6), None, None, training=True).reshape(4, 5, 6))
    channels = Rows(nn.LayerNorm(6), 1)
    y = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(channels(y), F.layer_norm(y.movedim(1, -1), (6,)).movedim(-1, 1))


@pytest.mark.parametrize(
    ("old", "weight", "bias"),
    [
        (nn.RMSNorm(8), True, False),
        (nn.LayerNorm(8, bias=False), True, False),
        (nn.LayerNorm(8, elementwise_affine=False), False, False),
        (nn.LayerNorm(8), True, True),
    ],
    ids=["rms", "without bias", "without affine", "with affine"],
)
@pytest.mark.parametrize("method", ["bn", "gn", "ln", "renorm", "4things"])
def test_the_affine_is_that_of_the_place(old: nn.Module, weight: bool, bias: bool, method: str) -> None:
    """What was trained there is trained, from the same values, and nothing else."""
    network = scattered(nn.Sequential(nn.Sequential(deepcopy(old)), nn.Linear(8, 3)).double())
    before = dict(network[0][0].named_parameters())
    new = swapped(network, normalization(method), (8,))
    trained = {name.rpartition(".")[2]: p for name, p in new[0].named_parameters() if p.requires_grad}
    assert set(trained) == {name for name, there in (("weight", weight), ("bias", bias)) if there}
    for name, parameter in trained.items():
        assert torch.equal(parameter, before[name])
    assert all(tensor.dtype == torch.float64 for tensor in new.parameters())
    assert new(torch.randn(6, 8, dtype=torch.float64)).isfinite().all()


def test_frozen_values_and_modes_stay() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4)).requires_grad_(False).eval()
    new = swapped(model, normalization("gn"), (4, 3, 3))
    assert not any(p.requires_grad or new.training for p in new.parameters())
    assert not new[0].training


def test_torchs_fast_path_does_not_normalize_behind_the_back_of_a_method() -> None:
    """In eval mode torch computes a whole encoder layer with layer normalization, whatever stands in it."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1)
    x = torch.randn(3, 5, 8)
    for method in ("vanilla", "bn", "gn", "ln"):
        model = swapped(deepcopy(encoder), normalization(method), (5, 8)).train()
        if method != "bn":
            expected = model(x)
            with torch.no_grad():
                torch.testing.assert_close(model.eval()(x), expected)
        else:
            with torch.no_grad():
                assert not torch.allclose(model.eval()(x), encoder.eval()(x))


# --- what is refused ---------------------------------------------------------------------------


class Strange(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's
        return super().forward(input) * 2


class MyNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().mean() * self.scale


class Unreached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) if x.sum().item() else x


def hooked() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.register_forward_hook(lambda module, inputs, output: None)
    return norm


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(Strange(4)), ["'0'", "Strange", "none of the normalizations"]),
        (nn.Sequential(nn.Sequential(MyNorm())), ["'0.0'", "MyNorm"]),
        (nn.Sequential(nn.LayerNorm([4, 3, 3])), ["'0'", "3 dimensions, [4, 3, 3]"]),
        (nn.Sequential(nn.LazyBatchNorm2d()), ["'0'", "lazy"]),
        (nn.Sequential(hooked()), ["'0'", "hooks"]),
        (nn.Sequential(parametrizations.weight_norm(nn.LayerNorm(4), dim=None)), ["'0'", "parametrized"]),
        (Unreached(), ["'norm'", "not reached"]),
        (Looks(), ["forward pass without data", "item"]),
    ],
    ids=["subclass", "unknown", "several dimensions", "lazy", "hooks", "parametrized", "unreached", "data"],
)
def test_what_cannot_be_replaced_is_named(model: nn.Module, words: list[str]) -> None:
    with pytest.raises(NotApplicable) as error:
        swapped(model, normalization("bn"), (4, 3, 3))
    assert all(word in str(error.value) for word in words)


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_network_is_refused() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm2d(4)))
    with pytest.raises(NotApplicable, match="scripted"):
        swapped(nn.Sequential(scripted), normalization("bn"), (4, 3, 3))


def test_what_a_method_cannot_serve_is_named_with_the_number_of_sites() -> None:
    def maker(features: int, dims: int, site: str) -> nn.Module:
        if features == 36:
            raise NotApplicable(f"group normalization behind layer {site!r}: 8 channels a group do not divide its 36")
        return nn.GroupNorm(features // 8, features)

    model = nn.Sequential(nn.BatchNorm2d(32), nn.Sequential(nn.BatchNorm2d(36)), nn.BatchNorm2d(36))
    with pytest.raises(NotApplicable, match=r"1 of 3 sites: .*'1\.0': 8 channels .* \(and 1 more\)"):
        swapped(model, Normalization(None, maker), (32, 3, 3))


@NEEDS_TIMM
def test_activations_that_are_part_of_a_normalizations_formula_stay() -> None:
    from timm.layers import EvoNorm2dS0, FilterResponseNormTlu2d

    for norm in (EvoNorm2dS0(8), FilterResponseNormTlu2d(8)):
        with pytest.raises(NotApplicable, match=f"'0' cannot be replaced: what its class {type(norm).__name__}"):
            swapped(nn.Sequential(norm), normalization("bn"), (8, 3, 3))


def test_a_layer_made_for_the_proof_is_of_the_places_kind() -> None:
    (place,) = places(nn.Sequential(nn.GroupNorm(2, 4)))
    assert isinstance(itself(place, 2), nn.GroupNorm)
