"""Filter response normalization, and which ReLU its threshold takes the place of."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint

from bnpbench.errors import NotApplicable
from bnpbench.layers import FilterResponseNorm, threshold
from tests.support.others import NEEDS_TIMM


def by_hand(layer: FilterResponseNorm, x: Tensor) -> Tensor:
    """Equations 1 to 3, value by value."""
    y = torch.empty_like(x)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            nu_squared = sum(value.item() ** 2 for value in x[n, c].flatten()) / x[n, c].numel()
            y[n, c] = layer.weight[c].item() * x[n, c] / (nu_squared + layer.eps) ** 0.5 + layer.bias[c].item()
            if layer.tau is not None:
                y[n, c] = y[n, c].clamp(min=layer.tau[c].item())
    return y


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("tlu", [True, False], ids=["tlu", "no tlu"])
def test_it_computes_the_equations(shape: tuple[int, ...], tlu: bool) -> None:
    torch.manual_seed(0)
    layer = FilterResponseNorm(3, eps=0.1).double()
    if tlu:
        layer.tau = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = 2 * torch.randn(shape, dtype=torch.float64) + 1
    torch.testing.assert_close(layer(x), by_hand(layer, x))
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


@NEEDS_TIMM
@pytest.mark.parametrize("tlu", [True, False], ids=["tlu", "no tlu"])
def test_it_is_timms(tlu: bool) -> None:
    from timm.layers import FilterResponseNormTlu2d

    torch.manual_seed(0)
    theirs = FilterResponseNormTlu2d(4, apply_act=tlu, eps=1e-6)
    ours = nn.Sequential(FilterResponseNorm(4, eps=1e-6), nn.ReLU())
    if tlu:
        threshold(ours, (4, 3, 3))
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours[0].load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(ours(x), theirs(x) if tlu else theirs(x).relu())


# --- whose place the threshold takes -----------------------------------------------------------


class Block(nn.Module):
    """As torchvision's: one ReLU behind a normalization, and behind the sum of another with the shortcut."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.first, self.second = FilterResponseNorm(4), FilterResponseNorm(4)
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.relu(self.first(x)))
        y += x
        activated: Tensor = self.relu(y)
        return activated


class Leaves(fx.Tracer):
    """As of normalizations of torch's, whose code is not gone into."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def moved(layer: FilterResponseNorm) -> Tensor:
    """With a threshold that ReLU would not have."""
    assert layer.tau is not None
    with torch.no_grad():
        return layer.tau.fill_(-0.5)


@pytest.mark.parametrize("how", ["plain", "traced", "checkpointed", "float64"])
@pytest.mark.parametrize("inplace", [True, False])
def test_a_relu_that_others_share_lets_pass_what_has_a_threshold_alone(how: str, inplace: bool) -> None:
    torch.manual_seed(0)
    model: Any = Block(inplace)
    block = fx.GraphModule(model, Leaves().trace(model)) if how == "traced" else model
    if how == "float64":
        block.double()
    threshold(block, (4, 3, 3))
    assert [name for name, _ in block.named_parameters() if "tau" in name] == ["first.tau"]
    moved(block.first)
    x = torch.randn(2, 4, 3, 3, dtype=block.first.weight.dtype).requires_grad_()
    for _ in range(2):  # nothing is left over from a call
        out = checkpoint(block, x, use_reentrant=False) if how == "checkpointed" else block(x)
        first = by_hand(block.first, x)
        torch.testing.assert_close(out, (by_hand(block.second, first) + x).relu())
        assert (first < 0).any()
        out.sum().backward()
        assert block.first.tau.grad is not None


def test_a_threshold_follows_the_bias_and_starts_from_zero() -> None:
    model = nn.Sequential(FilterResponseNorm(2), nn.Identity(), nn.ReLU()).requires_grad_(False)
    x = torch.randn(2, 2, 3, 3)
    before = deepcopy(model)(x)
    threshold(model, (2, 3, 3))
    assert not model[0].tau.requires_grad
    assert torch.equal(model(x), before)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(FilterResponseNorm(2))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.inner(x))


class Twice(nn.Module):
    """What else takes the normalization's output would see a threshold that was not there."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.relu = FilterResponseNorm(2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.relu(y) + y


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.relu = FilterResponseNorm(2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.norm(x)) if x.sum().item() else x


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Functional(), r"the ReLU behind 'inner\.0' is a function .* tlu = false"),
        (Twice(), "no ReLU follows a normalization"),
        (nn.Sequential(FilterResponseNorm(2), nn.Hardswish()), "no ReLU follows a normalization"),
        (Looks(), "forward pass without data"),
    ],
    ids=["function", "two takers", "another activation", "data"],
)
def test_where_it_cannot_take_a_relus_place_it_says_so(model: nn.Module, words: str) -> None:
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(NotApplicable, match=words):
        threshold(model, (2, 3, 3))
    assert {name: type(module) for name, module in model.named_modules()} == before
    assert not any("tau" in name for name, _ in model.named_parameters())


class Between(nn.Module):
    """A checkpoint that begins between a normalization and its ReLU."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.norm, self.relu = nn.Conv2d(2, 3, 3), FilterResponseNorm(3), nn.ReLU()
        self.last, self.use_reentrant = nn.Conv2d(3, 2, 3), use_reentrant

    def tail(self, x: Tensor) -> Tensor:
        return self.last(self.relu(x))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.tail, self.norm(self.first(x)), use_reentrant=self.use_reentrant)
        return y


def test_a_checkpoint_may_begin_between_a_normalization_and_its_relu() -> None:
    torch.manual_seed(0)
    model, x = Between(use_reentrant=False), torch.randn(2, 2, 8, 8, dtype=torch.float64)
    threshold(model, (2, 8, 8))
    model.double()
    assert model.norm.tau is not None
    nn.init.constant_(model.norm.tau, -0.5)
    model(x).square().sum().backward()
    ours = [parameter.grad for parameter in model.parameters()]
    y = model.last(by_formula(model.norm, model.first(x)))
    theirs = torch.autograd.grad(y.square().sum(), list(model.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def by_formula(norm: FilterResponseNorm, x: Tensor) -> Tensor:
    """Equations 1 to 3 at once."""
    assert norm.tau is not None
    scale = (x.square().mean((2, 3), keepdim=True) + norm.eps).sqrt()
    gamma, beta, tau = (parameter.view(1, -1, 1, 1) for parameter in (norm.weight, norm.bias, norm.tau))
    return torch.maximum(gamma * x / scale + beta, tau)


def test_reentrant_checkpointing_that_begins_there_is_refused() -> None:
    model = Between(use_reentrant=True)
    threshold(model, (2, 8, 8))
    with pytest.raises(NotApplicable, match="use_reentrant=False"):
        model(torch.randn(2, 2, 8, 8)).sum().backward()


def test_statistics_are_in_float32_under_autocast() -> None:
    layer, x = FilterResponseNorm(2), 300 * torch.randn(2, 2, 8, 8).half()
    exact = FilterResponseNorm(2).double()(x.double())
    with torch.autocast("cpu", torch.float16):
        torch.testing.assert_close(layer(x).double(), exact, rtol=2e-3, atol=2e-3)
